//! Retries of requests: how many, and after what pause.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The number of retries of a request, and the pauses between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Most retries; 4 by default.
    pub max: u32,
    /// The first pause, 0.5 s by default. Each further one is twice as long.
    pub base: Duration,
    /// The longest pause, 30 s by default. A server may ask for a longer one.
    pub cap: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { max: 4, base: Duration::from_millis(500), cap: Duration::from_secs(30) }
    }
}

impl Retries {
    /// The pause after this many attempts: between half and all of the full pause, so that requests that failed together are
    /// not repeated together. A pause that the server asks for is not shortened, nor does one of 0 shorten ours.
    pub(super) fn pause(&self, attempts: u32, asked: Option<Duration>) -> Duration {
        let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
        let full = self.base.saturating_mul(doubled).min(self.cap);
        let own = full.mul_f64(0.5 + fastrand::f64() / 2.0);
        let spread = self.base.min(self.cap).mul_f64(fastrand::f64() / 2.0);
        asked.map_or(own, |asked| asked.saturating_add(spread).max(own))
    }
}

/// The pause that the headers of a response ask for: `Retry-After`, or as OpenAI's client has it, `retry-after-ms`. Without
/// either, the time until the limits in the headers begin anew (OpenAI, Groq; OpenRouter has one limit without a name; Cerebras' are per
/// minute, hour or day, QwenLM/qwen-code#670).
pub(super) fn asked_pause<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Option<Duration> {
    let milliseconds = header("retry-after-ms").and_then(|value| value.trim().parse::<f64>().ok());
    milliseconds
        .and_then(|value| Duration::try_from_secs_f64(value / 1e3).ok())
        .or_else(|| retry_after(header("retry-after")?, SystemTime::now()))
        .or_else(|| {
            let is_used_up = |kind: &String| header(&format!("x-ratelimit-remaining{kind}")) == Some("0");
            let reset =
                |kind: String| until_reset(header(&format!("x-ratelimit-reset{kind}"))?, SystemTime::now());
            let spans = |of| ["", "-minute", "-hour", "-day"].map(|span| format!("{of}{span}"));
            ["-requests", "-tokens", ""]
                .into_iter()
                .flat_map(spans)
                .filter(is_used_up)
                .filter_map(reset)
                .max()
        })
}

/// The time until a limit begins anew: a span such as `1m30s` (OpenAI, Groq), seconds, or a moment in seconds or milliseconds since
/// 1970 (OpenRouter, Gitlawb/openclaude#936).
fn until_reset(text: &str, now: SystemTime) -> Option<Duration> {
    if let Some(span) = span(text) {
        return Some(span);
    }
    let number: f64 = text.trim().parse().ok()?;
    let since_1970 = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    match number {
        1e12.. => Some(Duration::try_from_secs_f64(number / 1e3).ok()?.saturating_sub(since_1970)),
        1e9.. => Some(Duration::try_from_secs_f64(number).ok()?.saturating_sub(since_1970)),
        seconds => Duration::try_from_secs_f64(seconds).ok(),
    }
}

/// Words before the pause in the text of an error.
const PAUSE_WORDS: [&str; 4] = ["retrydelay", "try again in ", "retry in ", "retry after "];

/// The pause that the text of an error asks for, the longest if it has several: "Please try again in 1.2s" (OpenAI, Groq),
/// "retry after 20 seconds" (Azure), `"retryDelay": "12s"` (Gemini, with "Please retry in 12.3s").
pub(super) fn told_pause(text: &str) -> Option<Duration> {
    let text = text.to_lowercase();
    let after = |words: &'static str| text.match_indices(words).map(move |(at, _)| at + words.len());
    PAUSE_WORDS.into_iter().flat_map(after).filter_map(|at| pause_at(&text[at..])).max()
}

/// The pause at the beginning of a text, after blanks and signs.
fn pause_at(text: &str) -> Option<Duration> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '.';
    let text = text.trim_start_matches(|letter: char| " \"'`\\:".contains(letter));
    let (number, rest) = text.split_at(text.find(|letter| !is_part(letter)).unwrap_or(text.len()));
    let number = number.trim_end_matches('.');
    let unit = ["second", "minute"].into_iter().position(|unit| rest.trim_start().starts_with(unit));
    unit.map_or_else(|| span(number), |unit| span(&format!("{number}{}", ["s", "m"][unit])))
        .filter(|_| !number.is_empty())
}

/// A span of time such as `6m0s`, `1.5s` or `20ms`.
fn span(text: &str) -> Option<Duration> {
    let mut seconds = 0.0;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| letter.is_ascii_alphabetic())?;
        let (number, unit) = rest.split_at(digits);
        let end = unit.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(unit.len());
        let factor = match &unit[..end] {
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * factor;
        rest = &unit[end..];
    }
    Duration::try_from_secs_f64(seconds).ok()
}

/// The pause that a `Retry-After` header asks for: seconds, or a date.
fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap() {
        let retries = Retries { max: 9, base: Duration::from_millis(100), cap: Duration::from_secs(1) };
        for (attempts, full) in [(1, 100), (2, 200), (4, 800), (5, 1000), (60, 1000)] {
            let full = Duration::from_millis(full);
            for _ in 0..100 {
                let pause = retries.pause(attempts, None);
                assert!(pause >= full / 2 && pause <= full, "{pause:?} after {attempts} attempts");
            }
        }
        let asked = Duration::from_secs(7);
        let pause = retries.pause(1, Some(asked));
        assert!(pause >= asked && pause <= asked + Duration::from_millis(50), "{pause:?}");
        let pause = retries.pause(4, Some(Duration::ZERO));
        assert!(pause >= Duration::from_millis(400), "{pause:?}");
    }

    #[test]
    fn a_server_asks_in_seconds_or_by_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let after = |value| retry_after(value, now);
        assert_eq!(after("2"), Some(Duration::from_secs(2)));
        assert_eq!(after(" 0.5 "), Some(Duration::from_millis(500)));
        assert_eq!(after("Sun, 06 Nov 1994 08:50:07 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(after("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        for nonsense in ["-1", "soon", "", "NaN", "1e400"] {
            assert_eq!(after(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_server_asks_in_the_text_of_an_error() {
        for (text, milliseconds) in [
            (
                "Rate limit reached for m on requests per min: Limit 3, Used 3. Please try again in 20s. Visit x",
                20_000,
            ),
            ("Please try again in 1.2s.", 1200),
            ("Please try again in 120ms. Visit", 120),
            ("Please try again in 7m12.5s. Need more tokens?", 432_500),
            ("Requests have exceeded the limit. Please retry after 20 seconds.", 20_000),
            ("Try again in 2 minutes", 120_000),
            (
                r#"[{"error": {"message": "Please retry in 11.5s.", "details": [{"retryDelay": "12s"}]}}]"#,
                12_000,
            ),
        ] {
            assert_eq!(told_pause(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in
            ["Please try again in a while", "try again in ", "retry after", "wait 5s", "Try again later."]
        {
            assert_eq!(told_pause(text), None, "{text}");
        }
    }

    #[test]
    fn a_server_asks_in_other_headers() {
        let asked = |pairs: &[(&'static str, &str)]| {
            asked_pause(|name| Some(pairs.iter().find(|(given, _)| *given == name)?.1))
        };
        assert_eq!(
            asked(&[("retry-after-ms", "1500"), ("retry-after", "9")]),
            Some(Duration::from_millis(1500))
        );
        let reset = ("x-ratelimit-reset-tokens", "1m0.5s");
        assert_eq!(
            asked(&[("x-ratelimit-remaining-tokens", "0"), reset]),
            Some(Duration::from_millis(60_500))
        );
        assert_eq!(asked(&[("x-ratelimit-remaining-tokens", "7"), reset]), None);
        let cerebras = [
            ("x-ratelimit-remaining-tokens-minute", "0"),
            ("x-ratelimit-reset-tokens-minute", "21.5"),
            ("x-ratelimit-remaining-requests-day", "14000"),
            ("x-ratelimit-reset-requests-day", "33011.38"),
        ];
        assert_eq!(asked(&cerebras), Some(Duration::from_millis(21_500)));
        assert_eq!(
            [span("20ms"), span("6m0s")],
            [Some(Duration::from_millis(20)), Some(Duration::from_secs(360))]
        );
        assert_eq!([span("soon"), span("5"), span("-1s")], [None; 3]);
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        for (text, seconds) in [
            ("1m30s", Some(90)),
            ("30", Some(30)),
            ("1800000020", Some(20)),
            ("1800000020000", Some(20)),
            ("1700000000000", Some(0)),
            ("soon", None),
            ("NaN", None),
        ] {
            assert_eq!(until_reset(text, now), seconds.map(Duration::from_secs), "{text}");
        }
        let one_limit = |left| asked(&[("x-ratelimit-remaining", left), ("x-ratelimit-reset", "30")]);
        assert_eq!([one_limit("0"), one_limit("3")], [Some(Duration::from_secs(30)), None]);
    }
}
