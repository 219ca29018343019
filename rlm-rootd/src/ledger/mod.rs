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
//!
//! A `Reservation` that is dropped gives back what it held, unless its request was sent: then the request may have cost
//! all of it, and the reservation is settled at that.

mod amounts;
mod exhausted;
mod prices;
mod remote;
mod stage;

use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::select_all;
use tokio::sync::Notify;

pub use self::amounts::{Amounts, Budget, Estimate, LedgerSnapshot, Left, Usage};
use self::amounts::{Sum, UNITS_PER_USD};
pub use self::exhausted::{Exhausted, Resource, Unpriced, Whose};
pub use self::prices::{Price, Prices, PricesError};
pub use self::remote::RemoteLedger;
use self::remote::RemoteReservation;
use self::stage::Stage;

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

    /// Takes a part of what is left, from 0 to 1, for a rollout below this one: until the share is dropped, nobody else in the
    /// tree can spend it. The rest of a batch stays open to its other rollouts, which could only wait for the share.
    pub fn share(self: &Arc<Self>, part: f64, rollout: &str) -> Share {
        let left = self.snapshot().left;
        let part_of = |left: Option<u64>| left.map(|left| (left as f64 * part) as u64);
        let budget = Budget {
            calls: part_of(left.calls),
            tokens: part_of(left.tokens),
            completion_tokens: part_of(left.completion_tokens),
            cost_usd: left.cost_usd.map(|left| left * part),
        };
        let ledger = Self::new(budget, self.prices.clone()).of_rollout(rollout);
        let ledger = match (self.batch(), self.remote()) {
            (Some(batch), _) => ledger.within(batch.clone()),
            (None, Some(remote)) => ledger.within_remote(remote.clone()),
            (None, None) => ledger,
        };
        let tokens = budget.tokens.unwrap_or_default();
        let completion_tokens = budget.completion_tokens.unwrap_or_default();
        let held = Sum {
            calls: budget.calls.unwrap_or_default(),
            prompt_tokens: tokens.saturating_sub(completion_tokens),
            completion_tokens,
            cost: ledger.cost_limit.unwrap_or_default(),
            ..Sum::default()
        };
        Self::change(self.tree(), |state| state.reserve = state.reserve.plus(&held));
        Share { ledger: Arc::new(ledger), lender: self.clone(), held }
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

    /// Like [`Self::check`], but waits where other rollouts of the shared ledger may give back what is missing.
    ///
    /// # Errors
    /// [`Exhausted`] if even then there is not enough.
    pub async fn wait_for_room(&self, estimate: &Estimate) -> Result<(), Exhausted> {
        let waits =
            |exhausted: &Exhausted| exhausted.may_pass() || exhausted.is_shared() && self.others_may_end();
        self.retried(|| self.check(estimate), waits).await?;
        // The reservation is given back at once.
        self.reserve_remotely(estimate, estimate.completion_tokens).await.map(drop)
    }

    async fn reserve_remotely(
        &self,
        estimate: &Estimate,
        least_completion: u64,
    ) -> Result<Option<RemoteReservation>, Exhausted> {
        let Some(remote) = self.remote() else { return Ok(None) };
        let price = self.prices.get(&estimate.model);
        remote.reserve(&self.rollout, estimate, least_completion, price).await.map(Some)
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

    /// Reserves the most that a request may cost.
    ///
    /// # Errors
    /// [`Exhausted`] where that is more than what is left.
    pub(crate) fn reserve(self: &Arc<Self>, estimate: &Estimate) -> Result<Reservation, Exhausted> {
        let reservation = self.reserve_with(estimate, &self.credit(estimate))?;
        if estimate.is_reserved {
            self.release_later();
        }
        Ok(reservation)
    }

    fn reserve_with(self: &Arc<Self>, estimate: &Estimate, credit: &Sum) -> Result<Reservation, Exhausted> {
        self.check_model(&estimate.model).map_err(Exhausted::Unpriced)?;
        let (price, held) = (self.prices.get(&estimate.model), self.sum(estimate));
        let mut state = self.state();
        self.check_sum(&state, &held, credit)?;
        let reserve = |shared: &Arc<Self>| {
            shared.reserve_with(estimate, credit).map_err(|exhausted| exhausted.of(shared.whose()))
        };
        let shared = self.shared.as_ref().map(reserve).transpose()?.map(Box::new);
        state.reserved = state.reserved.plus(&held);
        drop(state);
        Ok(Reservation { ledger: Arc::clone(self), shared, remote: None, price, held, stage: Stage::Held })
    }

    /// Like [`Self::reserve`], but waits for running requests to be settled if they hold what is missing. If the whole rest is
    /// not enough for the whole completion, reserves for a shorter one, of at least so many tokens.
    ///
    /// # Errors
    /// [`Exhausted`] where even that is more than what is left.
    pub(crate) async fn reserve_when_free(
        self: &Arc<Self>,
        estimate: &Estimate,
        least_completion: Option<u64>,
    ) -> Result<Reservation, Exhausted> {
        let least_completion = least_completion.unwrap_or(u64::MAX).min(estimate.completion_tokens);
        let mut reservation = self.reserve_here(estimate, least_completion).await?;
        let estimate = &Estimate { completion_tokens: reservation.completion_tokens(), ..estimate.clone() };
        reservation.remote = self.reserve_remotely(estimate, least_completion).await?;
        Ok(reservation)
    }

    async fn reserve_here(
        self: &Arc<Self>,
        estimate: &Estimate,
        least_completion: u64,
    ) -> Result<Reservation, Exhausted> {
        // Usually there is room, and then nothing has to be set up for a wait.
        if let Ok(reservation) = self.reserve(estimate) {
            return Ok(reservation);
        }
        let least = Estimate { completion_tokens: least_completion, ..estimate.clone() };
        loop {
            // Created before the check, so that a notification after the check is not missed.
            let freed = self.freed();
            match self.reserve(estimate) {
                Ok(reservation) => return Ok(reservation),
                Err(exhausted) if exhausted.may_pass() => drop(freed.await),
                Err(_) => match self.check(&least) {
                    Err(exhausted) if exhausted.may_pass() => drop(freed.await),
                    Err(exhausted) => return Err(exhausted),
                    // Amounts that running requests give back make room for more.
                    Ok(()) if self.all().any(|ledger| ledger.state().reserved.calls > 0) => {
                        drop(freed.await);
                    }
                    Ok(()) => {
                        let completion_tokens = self.affordable_completion(&least);
                        if let Ok(reservation) =
                            self.reserve(&Estimate { completion_tokens, ..estimate.clone() })
                        {
                            return Ok(reservation);
                        }
                    }
                },
            }
        }
    }

    /// The tokens of the longest completion of this prompt for which enough is left.
    fn affordable_completion(&self, prompt: &Estimate) -> u64 {
        let credit = self.credit(prompt);
        self.all().map(|ledger| ledger.own_affordable_completion(prompt, &credit)).min().unwrap_or_default()
    }

    fn own_affordable_completion(&self, prompt: &Estimate, credit: &Sum) -> u64 {
        let prompt = Estimate { completion_tokens: 0, ..prompt.clone() };
        let state = self.state();
        let reserve = state.reserve.minus(credit);
        let taken = state.used.plus(&state.reserved).plus(&reserve).plus(&self.sum(&prompt));
        let left =
            |limit: Option<u64>, taken: u64| limit.map_or(u64::MAX, |limit| limit.saturating_sub(taken));
        let price =
            self.prices.get(&prompt.model).map_or(0, |price| Sum::of(&Usage::new(0, 1), Some(price)).cost);
        left(self.budget.tokens, taken.tokens())
            .min(left(self.budget.completion_tokens, taken.completion_tokens))
            .min(left(self.cost_limit, taken.cost).checked_div(price).unwrap_or(u64::MAX))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }
}

/// Amounts that are reserved for one request.
#[derive(Debug)]
#[must_use = "a reservation that is dropped is given back"]
pub(crate) struct Reservation {
    ledger: Arc<Ledger>,
    /// The reservation in the shared ledger.
    shared: Option<Box<Self>>,
    /// The reservation in the other program's ledger.
    remote: Option<RemoteReservation>,
    price: Option<Price>,
    held: Sum,
    stage: Stage,
}

impl Reservation {
    /// The bound on the completion.
    pub(crate) fn completion_tokens(&self) -> u64 {
        self.remote.as_ref().map_or(self.held.completion_tokens, |remote| remote.completion_tokens)
    }

    /// Marks the request as about to be sent: unless it is settled or released, it costs all that is reserved.
    pub(crate) fn sent(&mut self) {
        self.stage = Stage::Sent;
        if let Some(shared) = &mut self.shared {
            shared.sent();
        }
        if let Some(remote) = &mut self.remote {
            remote.sent();
        }
    }

    /// Settles the request at this cost.
    pub(crate) fn settle(mut self, usage: &Usage) {
        if let Some(shared) = self.shared.take() {
            shared.settle(usage);
        }
        let spent = Sum::of(usage, self.price);
        if let Some(remote) = self.remote.take() {
            remote.settle(&spent);
        }
        self.end(Some((spent, usage.is_estimated)));
    }

    /// Settles the request at no cost, even if it was sent.
    pub(crate) fn release(mut self) {
        if let Some(shared) = self.shared.take() {
            shared.release();
        }
        if let Some(remote) = self.remote.take() {
            remote.settle(&Sum::default());
        }
        self.end(None);
    }

    fn end(&mut self, spent: Option<(Sum, bool)>) {
        self.stage = Stage::Ended;
        let mut state = self.ledger.state();
        state.reserved = state.reserved.minus(&self.held);
        if let Some((spent, is_estimated)) = spent {
            state.used = state.used.plus(&spent);
            state.is_estimated |= is_estimated;
        }
        drop(state);
        self.ledger.freed.notify_waiters();
    }
}

/// Gives back what a rollout has reserved for its last turn.
impl Drop for Ledger {
    fn drop(&mut self) {
        self.release_later();
    }
}

/// A part of a ledger for a rollout below it. When it is dropped, after all requests that spend from it, its rest comes back.
#[derive(Debug)]
#[must_use = "a share that is dropped is given back"]
pub struct Share {
    ledger: Arc<Ledger>,
    lender: Arc<Ledger>,
    held: Sum,
}

impl Share {
    /// The ledger that has this part alone.
    #[must_use]
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let State { used, reserved, is_estimated, .. } = *self.ledger.state();
        Ledger::change(self.lender.tree(), |state| {
            state.reserve = state.reserve.minus(&self.held);
            // A request that still runs may cost all that it has reserved.
            state.used = state.used.plus(&used).plus(&reserved);
            state.is_estimated |= is_estimated || reserved.calls > 0;
        });
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        match self.stage {
            Stage::Held => self.end(None),
            Stage::Sent => self.end(Some((self.held, true))),
            Stage::Ended => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const PRICES: &str = "[models.m]\nprompt = 1.0\ncompletion = 2.0\n";

    fn ledger(budget: Budget) -> Arc<Ledger> {
        Arc::new(Ledger::new(budget, Prices::from_toml(PRICES).unwrap()))
    }

    fn estimate(prompt_tokens: u64, completion_tokens: u64) -> Estimate {
        Estimate { model: "m".into(), prompt_tokens, cached_tokens: 0, completion_tokens, is_reserved: false }
    }

    /// The estimate of a request for which something is reserved.
    fn reserved(prompt_tokens: u64, completion_tokens: u64) -> Estimate {
        Estimate { is_reserved: true, ..estimate(prompt_tokens, completion_tokens) }
    }

    fn usage(prompt_tokens: u64, completion_tokens: u64) -> Usage {
        Usage::new(prompt_tokens, completion_tokens)
    }

    /// Calls and tokens: used, and reserved.
    fn state(ledger: &Ledger) -> [(u64, u64); 2] {
        let snapshot = ledger.snapshot();
        [snapshot.used, snapshot.reserved].map(|amounts| (amounts.calls, amounts.tokens))
    }

    #[test]
    fn a_reservation_ends_in_one_of_four_ways() {
        let ledger = ledger(Budget::default());
        let reserve = || ledger.reserve(&estimate(100, 50)).unwrap();
        let reservation = reserve();
        assert_eq!(state(&ledger), [(0, 0), (1, 150)]);
        reservation.settle(&usage(90, 10));
        assert_eq!(state(&ledger), [(1, 100), (0, 0)]);
        drop(reserve());
        assert_eq!(state(&ledger), [(1, 100), (0, 0)]);
        let mut sent = reserve();
        sent.sent();
        sent.release();
        assert_eq!(state(&ledger), [(1, 100), (0, 0)]);
        assert!(!ledger.snapshot().usage_estimated);
        let mut lost = reserve();
        lost.sent();
        drop(lost);
        assert_eq!(state(&ledger), [(2, 250), (0, 0)]);
        assert!(ledger.snapshot().usage_estimated);
    }

    #[test]
    fn each_limit_is_kept_and_named() {
        let error = |budget: Budget| ledger(budget).reserve(&estimate(1000, 500)).unwrap_err().to_string();
        let none = Budget::default();
        assert_eq!(error(Budget { calls: Some(0), ..none }), "budget exhausted: 0 of 0 calls are left");
        assert_eq!(
            error(Budget { tokens: Some(1499), ..none }),
            "budget exhausted: the call may need 1500 tokens, 1499 of 1499 are left"
        );
        assert_eq!(
            error(Budget { completion_tokens: Some(499), ..none }),
            "budget exhausted: the call may need 500 completion tokens, 499 of 499 are left"
        );
        assert_eq!(
            error(Budget { cost_usd: Some(0.0015), ..none }),
            "budget exhausted: the call may cost 0.002 USD, 0.0015 of 0.0015 USD are left"
        );
        let enough = Budget {
            calls: Some(1),
            tokens: Some(1500),
            completion_tokens: Some(500),
            cost_usd: Some(0.002),
        };
        let ledger = ledger(enough);
        let held = ledger.reserve(&estimate(1000, 500)).unwrap();
        let snapshot = ledger.snapshot();
        assert_eq!(
            snapshot.left,
            Left { calls: Some(0), tokens: Some(0), completion_tokens: Some(0), cost_usd: Some(0.0) }
        );
        let error = ledger.reserve(&estimate(1, 1)).unwrap_err();
        assert_eq!(error.to_string(), "budget exhausted: 0 of 1 calls are left, running calls hold 1");
        held.settle(&usage(1000, 500));
        assert_eq!(ledger.snapshot().used.cost_usd, Some(0.002));
    }

    #[test]
    fn reservations_of_running_calls_are_mentioned() {
        let ledger = ledger(Budget { tokens: Some(1000), ..Budget::default() });
        let _held = ledger.reserve(&estimate(300, 400)).unwrap();
        assert_eq!(
            ledger.reserve(&estimate(300, 400)).unwrap_err().to_string(),
            "budget exhausted: the call may need 700 tokens, 300 of 1000 are left, running calls hold 700"
        );
    }

    #[test]
    fn a_budget_that_is_no_number_of_dollars_is_nothing() {
        for cost_usd in [f64::NAN, -1.0] {
            let ledger = ledger(Budget { cost_usd: Some(cost_usd), ..Budget::default() });
            assert!(ledger.reserve(&estimate(1, 0)).is_err());
        }
        let ledger = ledger(Budget { cost_usd: Some(f64::INFINITY), ..Budget::default() });
        assert!(ledger.reserve(&estimate(1, 0)).is_ok());
    }

    #[test]
    fn numbers_beyond_all_measure_fit_no_budget() {
        let ledger = ledger(Budget { tokens: Some(u64::MAX - 1), ..Budget::default() });
        assert!(ledger.reserve(&estimate(u64::MAX, u64::MAX)).is_err());
        ledger.reserve(&estimate(1, 1)).unwrap().settle(&usage(u64::MAX, u64::MAX));
        assert!(ledger.reserve(&estimate(1, 1)).is_err());
    }

    #[tokio::test]
    async fn a_completion_may_be_as_long_as_the_budget_has_room() {
        let cost_usd = Some(1000e-6);
        let limits = [
            Budget { tokens: Some(600), ..Budget::default() },
            Budget { completion_tokens: Some(500), ..Budget::default() },
            // At 1 and 2 USD per million.
            Budget { cost_usd: Some(1100e-6), ..Budget::default() },
            Budget { tokens: Some(9000), completion_tokens: Some(500), cost_usd, ..Budget::default() },
        ];
        for (budget, expected) in limits.into_iter().zip([500, 500, 500, 450]) {
            let ledger = ledger(budget);
            let reservation = ledger.reserve_when_free(&estimate(100, 4096), Some(256)).await.unwrap();
            assert_eq!(reservation.completion_tokens(), expected, "{budget:?}");
            drop(reservation);
            // A bound that the caller has set stays as it is.
            ledger.reserve_when_free(&estimate(100, 4096), None).await.unwrap_err();
            let too_long = ledger.reserve_when_free(&estimate(100, 4096), Some(501)).await;
            assert!(too_long.is_err(), "{budget:?}");
            assert_eq!(state(&ledger), [(0, 0), (0, 0)]);
        }
    }

    #[tokio::test]
    async fn a_shorter_completion_waits_for_what_running_calls_give_back() {
        let ledger = ledger(Budget { tokens: Some(1000), ..Budget::default() });
        let running = ledger.reserve(&estimate(100, 400)).unwrap();
        let wanted = estimate(100, 4096);
        let mut waiting = std::pin::pin!(ledger.reserve_when_free(&wanted, Some(256)));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        running.settle(&usage(100, 50));
        assert_eq!(waiting.await.unwrap().completion_tokens(), 1000 - 150 - 100);
    }

    #[tokio::test]
    async fn rollouts_share_a_ledger_besides_their_own() {
        let shared = ledger(Budget { tokens: Some(1000), ..Budget::default() });
        let rollout =
            || Arc::new(Ledger::new(Budget::default(), shared.prices.clone()).within(shared.clone()));
        let (one, other) = (rollout(), rollout());
        assert!(one.bounds_completions() && one.has_limits());
        let mut running = one.reserve(&estimate(100, 400)).unwrap();
        assert_eq!((state(&one)[1], state(&shared)[1], state(&other)[1]), ((1, 500), (1, 500), (0, 0)));
        assert_eq!(other.snapshot().left.tokens, Some(500));
        let error = other.reserve(&estimate(100, 401)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the budget of all rollouts together is exhausted: the call may need 501 tokens, 500 of 1000 are left, \
             running calls hold 500"
        );
        // The running request may give back what is missing, so the check waits.
        let next = estimate(100, 401);
        let mut deciding = std::pin::pin!(other.check_when_free(&next));
        assert!(futures_util::poll!(&mut deciding).is_pending());
        let never = estimate(100, 901);
        assert!(other.check_when_free(&never).await.is_err());
        // One rollout gets what the other gives back.
        let wanted = estimate(100, 4096);
        let mut waiting = std::pin::pin!(other.reserve_when_free(&wanted, Some(256)));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        running.sent();
        running.settle(&usage(100, 50));
        let reservation = waiting.await.unwrap();
        assert_eq!(reservation.completion_tokens(), 1000 - 150 - 100);
        drop(reservation);
        deciding.await.unwrap();
        assert_eq!((state(&one), state(&other)), ([(1, 150), (0, 0)], [(0, 0), (0, 0)]));
        // One rollout's reserve for its last turn is not for the other, until the first is gone.
        one.reserve_later(&estimate(200, 100), None).unwrap();
        one.reserve_later(&estimate(200, 200), None).unwrap();
        assert_eq!(shared.snapshot().left.tokens, Some(450));
        other.check(&estimate(250, 200)).unwrap();
        other.check(&estimate(251, 200)).unwrap_err();
        // A rollout that is to begin waits for that reserve; one that would never fit does not.
        let next = rollout();
        let (begins, never) = (estimate(600, 200), estimate(600, 300));
        let mut waiting = std::pin::pin!(next.wait_for_room(&begins));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(one);
        waiting.await.unwrap();
        assert!(next.wait_for_room(&never).await.unwrap_err().is_shared());
        // A child does not wait for its parent's reserve, since the parent waits for the child.
        let parent = Arc::new(
            Ledger::new(Budget::default(), shared.prices.clone()).of_rollout("parent").within(shared.clone()),
        );
        parent.reserve_later(&estimate(200, 200), None).unwrap();
        let child = Ledger::new(Budget::default(), shared.prices.clone()).within(parent.clone());
        let checked = futures_util::poll!(std::pin::pin!(child.wait_for_room(&begins)));
        assert!(matches!(checked, std::task::Poll::Ready(Err(exhausted)) if exhausted.is_shared()));
        parent.release_later();
        assert_eq!(shared.snapshot().left.tokens, Some(850));
        assert_eq!(state(&shared), [(1, 150), (0, 0)]);
    }

    #[test]
    fn a_cached_prompt_costs_and_reserves_less() {
        let prices = Prices::from_toml(
            "[models.m]\nprompt = 1.0\ncompletion = 2.0\ncached = 0.1\ncache_write = 1.25\n",
        );
        let budget = Budget { cost_usd: Some(0.001), ..Budget::default() };
        let ledger = Arc::new(Ledger::new(budget, prices.unwrap()));
        let cost = |ledger: &Ledger| ledger.snapshot().used.cost_usd.unwrap();
        // Tokens that are not in the cache may be written to it: 600 × 1.25 + 100 × 2 units of 10⁻⁶ USD.
        let most = ledger.amounts(&estimate(600, 100)).cost_usd.unwrap();
        assert!((most - 0.000_95).abs() < 1e-12, "{most}");
        ledger.reserve(&estimate(801, 0)).unwrap_err();
        let cached = Estimate { cached_tokens: 800, ..estimate(801, 400) };
        let reservation = ledger.reserve(&cached).unwrap();
        let spent =
            Usage { cached_tokens: 700, cache_write_tokens: 100, reasoning_tokens: 9, ..usage(801, 10) };
        reservation.settle(&spent);
        assert!((cost(&ledger) - (70.0 + 125.0 + 1.0 + 20.0) / 1e6).abs() < 1e-12, "{}", cost(&ledger));
        assert_eq!(ledger.snapshot().used.cached_tokens, 700);
        // A cost that the server reports overrides the prices.
        let told = Usage { cost_usd: Some(0.0002), ..usage(500, 100) };
        ledger.reserve(&Estimate { cached_tokens: 500, ..estimate(500, 100) }).unwrap().settle(&told);
        assert!((cost(&ledger) - 0.000_416).abs() < 1e-12, "{}", cost(&ledger));
        assert_eq!((spent + told).cost_usd, None, "a part of the sum has no told cost");
        assert_eq!((told + Usage::default()).cost_usd, Some(0.0002));
    }

    #[test]
    fn many_threads_never_overrun_it() {
        let ledger = ledger(Budget { calls: Some(5000), tokens: Some(100_000), ..Budget::default() });
        thread::scope(|scope| {
            for seed in 0..64 {
                let ledger = &ledger;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    for _ in 0..1000 {
                        let (prompt, completion) = (random.u64(0..100), random.u64(0..100));
                        let Ok(mut reservation) = ledger.reserve(&estimate(prompt, completion)) else {
                            continue;
                        };
                        let snapshot = ledger.snapshot();
                        assert!(snapshot.used.tokens + snapshot.reserved.tokens <= 100_000);
                        reservation.sent();
                        match random.u8(0..3) {
                            0 => reservation.settle(&usage(prompt, random.u64(0..=completion))),
                            1 => reservation.release(),
                            _ => drop(reservation),
                        }
                    }
                });
            }
        });
        let snapshot = ledger.snapshot();
        assert_eq!((snapshot.reserved.calls, snapshot.reserved.tokens), (0, 0));
        assert!(snapshot.used.tokens <= 100_000 && snapshot.used.tokens > 99_000, "{snapshot:?}");
    }

    #[test]
    fn what_is_reserved_for_a_request_is_for_that_one_alone() {
        let all = ledger(Budget { tokens: Some(1000), ..Budget::default() });
        let rollout = |id: &str| {
            let ledger = Ledger::new(Budget::default(), all.prices.clone()).of_rollout(id);
            Arc::new(ledger.within(all.clone()))
        };
        let (one, other) = (rollout("one"), rollout("other"));
        one.reserve_later(&estimate(300, 300), None).unwrap();
        let last = reserved(350, 300);
        one.check(&last).unwrap();
        // The reserve is not for other requests of the same rollout, either.
        one.reserve(&estimate(100, 301)).unwrap_err();
        other.reserve(&estimate(100, 301)).unwrap_err();
        assert_eq!(one.affordable_completion(&last), 650);
        let running = one.reserve(&last).unwrap();
        // The rest of the reserve is left for others, and one reserve is for one request.
        assert_eq!(other.snapshot().left.tokens, Some(350));
        one.reserve(&estimate(300, 51)).unwrap_err();
        running.settle(&usage(300, 300));
        assert_eq!((state(&all), all.snapshot().left.tokens), ([(1, 600), (0, 0)], Some(400)));
    }

    #[test]
    fn a_reserve_grows_only_where_there_is_room_and_takes_nothing_of_others() {
        let all = ledger(Budget { tokens: Some(1000), ..Budget::default() });
        let rollout = || Arc::new(Ledger::new(Budget::default(), all.prices.clone()).within(all.clone()));
        let (one, other) = (rollout(), rollout());
        one.reserve_later(&estimate(300, 200), Some(&estimate(200, 100))).unwrap();
        other.reserve_later(&estimate(200, 100), Some(&estimate(150, 100))).unwrap_err();
        other.reserve_later(&estimate(200, 100), None).unwrap();
        assert_eq!(all.snapshot().left.tokens, Some(200));
        other.reserve_later(&estimate(300, 201), None).unwrap_err();
        one.reserve_later(&estimate(301, 200), Some(&estimate(100, 100))).unwrap_err();
        assert_eq!(all.snapshot().left.tokens, Some(200), "what was reserved stays so");
        one.reserve(&reserved(300, 200)).unwrap().settle(&usage(300, 200));
        other.reserve(&reserved(200, 100)).unwrap().settle(&usage(200, 100));
        assert_eq!((state(&all), all.snapshot().left.tokens), ([(2, 800), (0, 0)], Some(200)));
    }

    #[test]
    fn a_share_is_held_until_it_is_given_back() {
        let all = ledger(Budget { tokens: Some(10_000), ..Budget::default() });
        let within = |budget: Budget, id: &str, ledger: &Arc<Ledger>| {
            Arc::new(Ledger::new(budget, Prices::default()).of_rollout(id).within(ledger.clone()))
        };
        let root = within(Budget { calls: Some(9), tokens: Some(10_000), ..Budget::default() }, "root", &all);
        let parent = within(Budget::default(), "p", &root);
        parent.reserve_later(&estimate(900, 100), None).unwrap();
        let left = || (parent.snapshot().left.calls, parent.snapshot().left.tokens);
        assert_eq!(left(), (Some(8), Some(9000)));
        let share = parent.share(0.5, "p.1");
        assert_eq!((share.ledger().budget().calls, share.ledger().budget().tokens), (Some(4), Some(4500)));
        // A share is not taken from other rollouts: they could only wait for it.
        assert_eq!((left(), all.snapshot().left.tokens), ((Some(4), Some(4500)), Some(9000)));
        let child = within(Budget::default(), "p.1", share.ledger());
        let error = child.reserve(&estimate(4000, 501)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the budget of the rollouts above is exhausted: the call may need 4501 tokens, 4500 of 4500 are left"
        );
        child.reserve(&estimate(100, 100)).unwrap().settle(&usage(100, 50));
        child.reserve_later(&estimate(1, 1), None).unwrap();
        assert_eq!(left(), (Some(4), Some(4500)), "the share is spent, not the rest");
        assert_eq!((state(&all)[0], all.snapshot().left.tokens), ((1, 150), Some(8848)));
        // The parent's own reserve is not a part of the share.
        parent.release_later();
        assert_eq!(left(), (Some(5), Some(5500)));
        drop(child);
        drop(share);
        assert_eq!(left(), (Some(8), Some(9850)));
        assert_eq!((state(&all)[0], state(&root)[0]), ((1, 150), (1, 150)));
        // A share is not reduced by what other rollouts of a batch have spent.
        let share = parent.share(1.0, "p.2");
        within(Budget::default(), "other", &all)
            .reserve(&estimate(9000, 100))
            .unwrap()
            .settle(&usage(9000, 100));
        let error =
            within(Budget::default(), "p.2", share.ledger()).reserve(&estimate(700, 100)).unwrap_err();
        assert!(error.is_shared(), "{error}");
    }
}
