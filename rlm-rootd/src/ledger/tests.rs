//! Tests of ledgers and their reservations.

use std::thread;

use super::*;

const PRICES: &str = "[models.m]\nprompt = 1.0\ncompletion = 2.0\n";

fn ledger(budget: Budget) -> Arc<Ledger> {
    Arc::new(Ledger::new(budget, Prices::from_toml(PRICES).unwrap()))
}

/// The ledger of a rollout that also spends from another one.
fn within(budget: Budget, id: &str, outer: &Arc<Ledger>) -> Arc<Ledger> {
    Arc::new(Ledger::new(budget, outer.prices.clone()).of_rollout(id).within(outer.clone()))
}

fn estimate(prompt_tokens: u64, completion_tokens: u64) -> Estimate {
    Estimate {
        model: "m".into(),
        prompt_tokens,
        cached_tokens: 0,
        completion_tokens,
        has_hour_cache: false,
        is_reserved: false,
    }
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
    let enough =
        Budget { calls: Some(1), tokens: Some(1500), completion_tokens: Some(500), cost_usd: Some(0.002) };
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
    let rollout = || within(Budget::default(), "", &shared);
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
    let parent = within(Budget::default(), "parent", &shared);
    parent.reserve_later(&estimate(200, 200), None).unwrap();
    let child = within(Budget::default(), "", &parent);
    let checked = futures_util::poll!(std::pin::pin!(child.wait_for_room(&begins)));
    assert!(matches!(checked, std::task::Poll::Ready(Err(exhausted)) if exhausted.is_shared()));
    parent.release_later();
    assert_eq!(shared.snapshot().left.tokens, Some(850));
    assert_eq!(state(&shared), [(1, 150), (0, 0)]);
}

#[test]
fn a_cached_prompt_costs_and_reserves_less() {
    let prices = "[models.m]\nprompt = 1.0\ncompletion = 2.0\ncached = 0.1\ncache_write = 1.25\n";
    let budget = Budget { cost_usd: Some(0.001), ..Budget::default() };
    let ledger = Arc::new(Ledger::new(budget, Prices::from_toml(prices).unwrap()));
    let cost = |ledger: &Ledger| ledger.snapshot().used.cost_usd.unwrap();
    // Tokens that are not in the cache may be written to it: 600 × 1.25 + 100 × 2 units of 10⁻⁶ USD.
    let most = ledger.amounts(&estimate(600, 100)).cost_usd.unwrap();
    assert!((most - 0.000_95).abs() < 1e-12, "{most}");
    ledger.reserve(&estimate(801, 0)).unwrap_err();
    let cached = Estimate { cached_tokens: 800, ..estimate(801, 400) };
    let reservation = ledger.reserve(&cached).unwrap();
    let spent = Usage { cached_tokens: 700, cache_write_tokens: 100, reasoning_tokens: 9, ..usage(801, 10) };
    reservation.settle(&spent);
    assert!((cost(&ledger) - (70.0 + 125.0 + 1.0 + 20.0) / 1e6).abs() < 1e-12, "{}", cost(&ledger));
    assert_eq!(ledger.snapshot().used.cached_tokens, 700);
    // Writing for an hour costs twice the price of a prompt.
    let hour = Usage { cache_write_tokens: 100, hour_cache_write_tokens: 40, ..usage(100, 0) };
    let price = Prices::from_toml(prices).unwrap().get("m");
    assert!((hour.cost_usd(price).unwrap() - (60.0 * 1.25 + 40.0 * 2.0) / 1e6).abs() < 1e-12);
    let most = ledger.amounts(&Estimate { has_hour_cache: true, ..estimate(600, 100) }).cost_usd.unwrap();
    assert!((most - 0.0014).abs() < 1e-12, "{most}");
    // A cost of 0 is that of a server without prices, or of a model without one.
    let nothing = Usage { cost_usd: Some(0.0), ..usage(100, 0) };
    assert!((nothing.cost_usd(price).unwrap() - 0.0001).abs() < 1e-12);
    assert_eq!(nothing.cost_usd(None), Some(0.0));
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
    let (one, other) = (within(Budget::default(), "one", &all), within(Budget::default(), "other", &all));
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
    let (one, other) = (within(Budget::default(), "one", &all), within(Budget::default(), "other", &all));
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
    within(Budget::default(), "other", &all).reserve(&estimate(9000, 100)).unwrap().settle(&usage(9000, 100));
    let error = within(Budget::default(), "p.2", share.ledger()).reserve(&estimate(700, 100)).unwrap_err();
    assert!(error.is_shared(), "{error}");
}
