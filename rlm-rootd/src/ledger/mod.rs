//! The spending of a rollout on models, and its budget.
//!
//! Each request to a model reserves the most that it may cost before it is sent, and is settled at its cost afterwards. Both
//! happen under one lock, so concurrent requests cannot spend the same money twice.
//!
//! A request reserves the estimated tokens of its prompt and the limit of its completion. The limit is a bound, the estimate is
//! not: a prompt of more tokens than estimated exceeds a budget by the difference.
//!
//! Several rollouts may spend from one ledger besides their own ([`Ledger::within`]): a request needs room in each. Locks are taken
//! from the own ledger outwards. The outermost one may be in another program ([`RemoteLedger`]), which is asked last, with no lock taken.

mod amounts;
mod exhausted;
mod prices;
mod remote;
mod reservation;
mod share;
mod stage;

use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::select_all;
use tokio::sync::Notify;

pub use self::amounts::{Amounts, Budget, Estimate, LedgerSnapshot, Left, Usage};
use self::amounts::{Sum, UNITS_PER_USD};
pub use self::exhausted::{Exhausted, Resource, Unpriced, Whose};
pub use self::prices::{Price, Prices, PricesError};
pub use self::remote::RemoteLedger;
pub(crate) use self::reservation::Reservation;
pub use self::share::Share;

/// The spending of one rollout on models.
#[derive(Debug)]
pub struct Ledger {
    budget: Budget,
    /// The budget's cost in our unit.
    cost_limit: Option<u64>,
    prices: Prices,
    /// The ledger of several rollouts, of which this is one.
    shared: Option<Arc<Self>>,
    /// The ledger in another program, around the outermost one here.
    remote: Option<Arc<RemoteLedger>>,
    /// The rollout, for that other program.
    rollout: String,
    state: Mutex<State>,
    /// Notified each time a reservation ends.
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    used: Sum,
    reserved: Sum,
    /// The amounts reserved for one later request of each rollout, and for shares.
    reserve: Sum,
    /// The part of `reserve` that is for this ledger's own request.
    own_reserve: Sum,
    is_estimated: bool,
}

impl Ledger {
    /// An empty ledger.
    #[must_use]
    pub fn new(budget: Budget, prices: Prices) -> Self {
        // The cast rounds towards zero and saturates; NaN and negative numbers become 0.
        let cost_limit = budget.cost_usd.map(|usd| (usd * UNITS_PER_USD) as u64);
        Self {
            budget,
            cost_limit,
            prices,
            shared: None,
            remote: None,
            rollout: String::new(),
            state: Mutex::default(),
            freed: Notify::new(),
        }
    }

    /// The ledger of a rollout with this id.
    #[must_use]
    pub fn of_rollout(mut self, id: &str) -> Self {
        id.clone_into(&mut self.rollout);
        self
    }

    /// A ledger whose requests also spend from a shared one.
    #[must_use]
    pub fn within(mut self, shared: Arc<Self>) -> Self {
        self.shared = Some(shared);
        self
    }

    /// A ledger whose requests also spend from one in another program.
    #[must_use]
    pub fn within_remote(mut self, remote: Arc<RemoteLedger>) -> Self {
        self.remote = Some(remote);
        self
    }

    /// Waits until the other program, if there is one, was told of all requests that have ended.
    pub async fn settled(&self) {
        if let Some(remote) = self.remote() {
            remote.settled().await;
        }
    }

    fn remote(&self) -> Option<&Arc<RemoteLedger>> {
        self.all().find_map(|ledger| ledger.remote.as_ref())
    }

    /// This ledger and those around it.
    fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |ledger| ledger.shared.as_deref())
    }

    /// The ledger of all rollouts of a batch, outside of those of the tree.
    fn batch(&self) -> Option<&Arc<Self>> {
        self.all().filter_map(|ledger| ledger.shared.as_ref()).find(|shared| shared.whose() == Whose::All)
    }

    /// This ledger and those around it in the tree.
    fn tree(&self) -> impl Iterator<Item = &Self> {
        let batch = self.batch().map(Arc::as_ptr);
        self.all().take_while(move |ledger| Some(std::ptr::from_ref(*ledger)) != batch)
    }

    /// True if requests need a bound on their completion to stay within the budgets.
    #[must_use]
    pub fn bounds_completions(&self) -> bool {
        // The limits of the other program are not known here.
        self.all().any(|ledger| ledger.budget.bounds_completions()) || self.remote().is_some()
    }

    /// True if there is any limit.
    #[must_use]
    pub fn has_limits(&self) -> bool {
        self.all().any(|ledger| ledger.budget != Budget::default()) || self.remote().is_some()
    }

    /// The limits.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Checks that a model may be called at all.
    ///
    /// # Errors
    /// [`Unpriced`].
    pub fn check_model(&self, model: &str) -> Result<(), Unpriced> {
        match self.all().any(|ledger| ledger.cost_limit.is_some() && ledger.prices.get(model).is_none()) {
            true => Err(Unpriced { model: model.to_owned() }),
            false => Ok(()),
        }
    }

    /// The amounts that are used, reserved and left.
    #[must_use]
    pub fn snapshot(&self) -> LedgerSnapshot {
        let State { used, reserved, reserve, is_estimated, .. } = *self.state();
        let spoken_for = used.plus(&reserved).plus(&reserve);
        let left = |limit: Option<u64>, taken: u64| limit.map(|limit| limit.saturating_sub(taken));
        let left = Left {
            calls: left(self.budget.calls, spoken_for.calls),
            tokens: left(self.budget.tokens, spoken_for.tokens()),
            completion_tokens: left(self.budget.completion_tokens, spoken_for.completion_tokens),
            cost_usd: left(self.cost_limit, spoken_for.cost).map(|cost| cost as f64 / UNITS_PER_USD),
        };
        let left = self.shared.as_ref().map_or(left, |shared| left.at_most(&shared.snapshot().left));
        LedgerSnapshot {
            used: used.amounts(),
            reserved: reserved.amounts(),
            left,
            usage_estimated: is_estimated,
        }
    }

    /// Reserves this much for one later request, in place of an earlier reserve, if there is room for it after `next`.
    ///
    /// # Errors
    /// [`Exhausted`] if there is no room. The earlier reserve then stays.
    pub fn reserve_later(&self, later: &Estimate, next: Option<&Estimate>) -> Result<(), Exhausted> {
        let (old, new) = (self.state().own_reserve, self.sum(later));
        self.replace_reserve(&old, &new, next.map(|next| self.sum(next)).as_ref())?;
        self.state().own_reserve = new;
        Ok(())
    }

    /// Like [`Self::reserve_later`], but waits for amounts that running requests may give back.
    ///
    /// # Errors
    /// [`Exhausted`] if even then there is no room.
    pub async fn reserve_later_when_free(&self, later: &Estimate, next: &Estimate) -> Result<(), Exhausted> {
        self.retried(|| self.reserve_later(later, Some(next)), Exhausted::may_pass).await
    }

    fn replace_reserve(&self, old: &Sum, new: &Sum, next: Option<&Sum>) -> Result<(), Exhausted> {
        let mut state = self.state();
        let reserve = state.reserve.minus(old).plus(new);
        match next {
            Some(next) => self.check_sum(&State { reserve, ..*state }, next, &Sum::default())?,
            None => self.check_sum(&state, new, old)?,
        }
        if let Some(shared) = &self.shared {
            shared.replace_reserve(old, new, next).map_err(|exhausted| exhausted.of(shared.whose()))?;
        }
        state.reserve = reserve;
        drop(state);
        self.freed.notify_waiters();
        Ok(())
    }

    /// Gives back what is reserved for a later request.
    pub fn release_later(&self) {
        let old = std::mem::take(&mut self.state().own_reserve);
        Self::change(self.all(), |state| state.reserve = state.reserve.minus(&old));
    }

    /// The part of the reserve that a request may spend: all of it, or none.
    fn credit(&self, estimate: &Estimate) -> Sum {
        if estimate.is_reserved { self.state().own_reserve } else { Sum::default() }
    }

    /// Changes ledgers, from the own one outwards.
    fn change<'a>(ledgers: impl Iterator<Item = &'a Self>, change: impl Fn(&mut State)) {
        for ledger in ledgers {
            change(&mut ledger.state());
            ledger.freed.notify_waiters();
        }
    }

    /// The most that a request may cost.
    #[must_use]
    pub fn amounts(&self, estimate: &Estimate) -> Amounts {
        self.sum(estimate).amounts()
    }

    /// Checks that the most that a request may cost is left.
    ///
    /// # Errors
    /// [`Exhausted`] where it is not.
    pub fn check(&self, estimate: &Estimate) -> Result<(), Exhausted> {
        self.check_with(estimate, &self.credit(estimate))
    }

    fn check_with(&self, estimate: &Estimate, credit: &Sum) -> Result<(), Exhausted> {
        self.check_model(&estimate.model).map_err(Exhausted::Unpriced)?;
        self.check_sum(&self.state(), &self.sum(estimate), credit)?;
        let Some(shared) = &self.shared else { return Ok(()) };
        shared.check_with(estimate, credit).map_err(|exhausted| exhausted.of(shared.whose()))
    }

    /// Like [`Self::check`], but waits for amounts that running requests may give back.
    ///
    /// # Errors
    /// [`Exhausted`] if even then there is not enough.
    pub async fn check_when_free(&self, estimate: &Estimate) -> Result<(), Exhausted> {
        self.retried(|| self.check(estimate), Exhausted::may_pass).await
    }

    /// Repeats a check whenever something is given back, as long as the error may pass.
    async fn retried(
        &self,
        check: impl Fn() -> Result<(), Exhausted>,
        waits: impl Fn(&Exhausted) -> bool,
    ) -> Result<(), Exhausted> {
        loop {
            // Created before the check, so that a notification after the check is not missed.
            let freed = self.freed();
            match check() {
                Err(exhausted) if waits(&exhausted) => drop(freed.await),
                checked => return checked,
            }
        }
    }

    /// The owner of the budget, as the rollouts that spend from it see it.
    fn whose(&self) -> Whose {
        if self.rollout.is_empty() { Whose::All } else { Whose::Parent }
    }

    /// Completes when a reservation of this ledger, or of one around it, has ended.
    fn freed(&self) -> impl Future {
        select_all(self.all().map(|ledger| Box::pin(ledger.freed.notified())))
    }

    /// True if rollouts of the same batch hold reserves that they give back at their end. A child does not wait for that: they
    /// may be waiting for their own children, and its parent waits for it.
    fn others_may_end(&self) -> bool {
        let batch = self.shared.as_ref().filter(|shared| shared.whose() == Whose::All);
        batch.is_some_and(|batch| batch.state().reserve.calls > 0)
    }

    fn sum(&self, estimate: &Estimate) -> Sum {
        Sum::most(estimate, self.prices.get(&estimate.model))
    }

    fn check_sum(&self, state: &State, sum: &Sum, credit: &Sum) -> Result<(), Exhausted> {
        let used = state.used.plus(&state.reserve.minus(credit));
        let limits = [
            (Resource::Calls, self.budget.calls, sum.calls, used.calls, state.reserved.calls),
            (Resource::Tokens, self.budget.tokens, sum.tokens(), used.tokens(), state.reserved.tokens()),
            (
                Resource::CompletionTokens,
                self.budget.completion_tokens,
                sum.completion_tokens,
                used.completion_tokens,
                state.reserved.completion_tokens,
            ),
            (Resource::Cost, self.cost_limit, sum.cost, used.cost, state.reserved.cost),
        ];
        let mut short = None;
        for (resource, limit, needed, used, reserved) in limits {
            let Some(limit) = limit else { continue };
            let left = limit.saturating_sub(used).saturating_sub(reserved);
            if needed <= left {
                continue;
            }
            let exhausted = Exhausted::Short { resource, needed, left, reserved, limit, whose: Whose::Own };
            if !exhausted.may_pass() {
                return Err(exhausted);
            }
            short.get_or_insert(exhausted);
        }
        short.map_or(Ok(()), Err)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }
}

/// Gives back what a rollout has reserved for its last turn.
impl Drop for Ledger {
    fn drop(&mut self) {
        self.release_later();
    }
}

#[cfg(test)]
mod tests;
