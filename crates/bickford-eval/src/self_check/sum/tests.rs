use super::*;

/// Writes what is told while operations go by, on a clock that only it moves.
struct Scene {
    told: Told,
    now: u64,
}

impl Scene {
    fn new() -> Self {
        Self {
            told: Told::default(),
            now: 5_000_000,
        }
    }

    fn after(&mut self, nanoseconds: u64) -> u64 {
        self.now += nanoseconds;
        self.now
    }

    fn step(&mut self, after: u64, step: Step) {
        let at_ns = self.after(after);
        self.told.steps.push(ThreadStep { at_ns, step });
    }

    /// The caller sends 200 ns later, sleeps, and is awake again 1100 ns after the answer.
    fn request(&mut self, unique: u64) {
        let sent_ns = self.after(200);
        self.step(300, Step::Slept);
        let received_ns = self.after(1_000);
        let decoded_ns = self.after(400);
        let handled_ns = self.after(2_000);
        let ended_ns = self.after(800);
        self.step(1_100, Step::Resumed);
        self.told.requests.push(Request {
            unique,
            sent_ns,
            ended_ns,
        });
        let served = Served {
            received_ns,
            decoded_ns,
            handled_ns,
        };
        self.told.served.insert(unique, served);
    }

    /// One operation of two requests, with `own` ns of the caller's own before its system call.
    fn operation(&mut self, first: u64, own: u64) {
        let begun = self.after(10_000);
        self.step(20 + own, Step::Entered);
        self.request(first);
        self.request(first + 1);
        self.step(500, Step::Left);
        let over = self.after(20);
        self.told.spans.push((begun, over));
    }

    fn sum(self) -> StageSum {
        add_up("base", "stat", self.told).unwrap()
    }
}

fn close(value: f64, expected: f64) -> bool {
    (value - expected).abs() < 1e-9
}

#[test]
fn stages_add_up_to_what_the_caller_waited() {
    let mut scene = Scene::new();
    (0..10).for_each(|number| scene.operation(number * 2, 0));
    let sum = scene.sum();
    assert!(close(sum.requests_per_operation, 2.0), "{sum:?}");
    assert!(close(sum.calling_us, 0.2 * 2.0 + 0.5), "{sum:?}");
    assert!(close(sum.queued_us, 1.3 * 2.0), "{sum:?}");
    assert!(close(sum.decode_us, 0.4 * 2.0), "{sum:?}");
    assert!(close(sum.handler_us, 2.0 * 2.0), "{sum:?}");
    assert!(close(sum.reply_us, 0.8 * 2.0), "{sum:?}");
    assert!(close(sum.waking_us, 1.1 * 2.0), "{sum:?}");
    assert!(close(sum.preempted_us, 0.0), "{sum:?}");
    assert!(close(sum.waited_us, sum.sum_us + 0.04), "{sum:?}");
    assert_eq!(sum.failure(), None);
}

#[test]
fn a_delay_of_the_callers_own_is_not_hidden() {
    let mut scene = Scene::new();
    scene.operation(0, 0);
    scene.operation(2, 5_000);
    let sum = scene.sum();
    assert!(close(sum.waited_us, sum.sum_us + 0.04 + 2.5), "{sum:?}");
    let failure = sum.failure().unwrap();
    assert!(
        failure.contains("stat") && failure.contains("10%"),
        "{failure}"
    );
}

/// The caller sleeps in its system call, and nothing tells of a request: nobody can say what for.
#[test]
fn a_request_that_nobody_told_of_is_missing_from_the_sum() {
    let mut scene = Scene::new();
    scene.operation(0, 0);
    scene.told.requests.remove(0);
    let sum = scene.sum();
    assert!(close(sum.requests_per_operation, 1.0), "{sum:?}");
    assert!(!sum.within && sum.off_pct < -20.0, "{sum:?}");
}

/// The kernel leaves out some switches: waking then lasts until the next step that it tells of.
#[test]
fn a_switch_that_is_left_out_moves_time_between_stages_and_loses_none() {
    let mut scene = Scene::new();
    scene.operation(0, 0);
    scene.told.steps.retain(|step| step.step != Step::Resumed);
    let sum = scene.sum();
    assert!(close(sum.calling_us, 0.2), "{sum:?}");
    assert!(close(sum.waking_us, 1.1 + 0.2 + 1.1 + 0.5), "{sum:?}");
    assert!(close(sum.waited_us, sum.sum_us + 0.04), "{sum:?}");
}

/// Without its system calls the caller's own part is unknown, not what is left over.
#[test]
fn system_calls_that_nobody_told_of_are_missing_from_the_sum() {
    let mut scene = Scene::new();
    scene.operation(0, 0);
    let calls = [Step::Entered, Step::Left];
    scene.told.steps.retain(|step| !calls.contains(&step.step));
    let sum = scene.sum();
    assert!(close(sum.calling_us, 0.0), "{sum:?}");
    assert!(close(sum.waited_us, sum.sum_us + 0.04 + 0.9), "{sum:?}");
}

#[test]
fn times_of_another_request_do_not_add_up() {
    for other in [0, 6] {
        let mut scene = Scene::new();
        (0..4).for_each(|number| scene.operation(number * 2, 0));
        let wrong = scene.told.served[&other];
        (0..8).for_each(|unique| {
            scene.told.served.insert(unique, wrong);
        });
        let sum = scene.sum();
        assert!(!sum.within && sum.off_pct > 10.0, "{other}: {sum:?}");
    }
}

#[test]
fn a_request_without_the_daemons_times_is_an_error() {
    let mut scene = Scene::new();
    scene.operation(0, 0);
    scene.told.served.remove(&1);
    let error = add_up("base", "stat", scene.told).unwrap_err();
    assert!(error.contains("every request"), "{error}");
    let error = add_up("base", "stat", Told::default()).unwrap_err();
    assert!(error.contains("no request"), "{error}");
}

#[test]
fn what_nobody_waits_for_counts_for_nothing() {
    let mut scene = Scene::new();
    scene.operation(0, 0);
    let (begun, over) = scene.told.spans[0];
    for (unique, sent_ns, ended_ns) in [(7, begun - 50, begun + 50), (8, over - 30, over + 90)] {
        scene.told.requests.push(Request {
            unique,
            sent_ns,
            ended_ns,
        });
    }
    let sum = scene.sum();
    assert!(
        sum.within && close(sum.requests_per_operation, 2.0),
        "{sum:?}"
    );
}

/// Preempted in the middle of a request, which ends meanwhile, and once more outside of one.
#[test]
fn waiting_for_a_processor_is_a_stage_and_counts_once() {
    let mut scene = Scene::new();
    scene.operation(0, 0);
    let slept = scene.told.steps.iter_mut().find(|s| s.step == Step::Slept);
    slept.unwrap().step = Step::Preempted;
    let (_, over) = scene.told.spans[0];
    let last = scene.told.steps.len() - 1;
    let (from, to) = (over - 420, over - 120);
    let out = ThreadStep {
        at_ns: from,
        step: Step::Preempted,
    };
    let back = ThreadStep {
        at_ns: to,
        step: Step::Resumed,
    };
    scene.told.steps.splice(last..last, [out, back]);
    let sum = scene.sum();
    assert!(close(sum.preempted_us, 1.1 + 0.3), "{sum:?}");
    assert!(close(sum.waking_us, 1.1), "{sum:?}");
    assert!(close(sum.calling_us, 0.4 + 0.2), "{sum:?}");
    assert!(close(sum.waited_us, sum.sum_us + 0.04), "{sum:?}");
}
