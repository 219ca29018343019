//! Reservations of the most that a request may cost, until it is settled at its cost.
//!
//! A [`Reservation`] that is dropped gives back what it held, unless its request was sent: then the request may have cost
//! all of it, and the reservation is settled at that.

use std::sync::Arc;

use super::Ledger;
use super::amounts::{Estimate, Sum, Usage};
use super::exhausted::Exhausted;
use super::prices::Price;
use super::remote::RemoteReservation;
use super::stage::Stage;

impl Ledger {
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
    pub(crate) fn affordable_completion(&self, prompt: &Estimate) -> u64 {
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

impl Drop for Reservation {
    fn drop(&mut self) {
        match self.stage {
            Stage::Held => self.end(None),
            Stage::Sent => self.end(Some((self.held, true))),
            Stage::Ended => {}
        }
    }
}
