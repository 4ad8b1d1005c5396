//! datetime.strftime for a moment in UTC: the clock of a template is the one of its request.

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

struct Moment {
    year: i64,
    month: i64,       // 1..12
    day: i64,         // 1..31
    day_of_year: i64, // 0..365
    weekday: i64,     // 0 = Sunday
    second_of_day: i64,
}

/// The civil date of days since 1970-01-01 (Howard Hinnant, "chrono-compatible low-level date
/// algorithms").
fn civil(now: i64) -> Moment {
    let days = now.div_euclid(86_400);
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let doe = shifted.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][(month - 1) as usize];
    let day = doy - (153 * mp + 2) / 5 + 1;
    Moment {
        year,
        month,
        day,
        day_of_year: before + day - 1 + i64::from(leap && month > 2),
        weekday: (days + 4).rem_euclid(7),
        second_of_day: now.rem_euclid(86_400),
    }
}

pub fn strftime(format: &str, now: i64) -> String {
    // Four-digit years are all that a clock shows.
    let moment = civil(now.clamp(0, 253_402_300_799));
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut pad = None;
        let mut directive = chars.next();
        if let Some(flag @ ('-' | '_' | '0')) = directive {
            pad = Some(flag);
            directive = chars.next();
        }
        match directive {
            Some(d) => push(d, pad, &moment, &mut out),
            None => out.push('%'),
        }
    }
    out
}

fn number(value: i64, width: usize, fill: char, pad: Option<char>, out: &mut String) {
    let digits = value.to_string();
    let fill = match pad {
        Some('-') => None,
        Some('_') => Some(' '),
        Some(_) => Some('0'),
        None => Some(fill),
    };
    if let Some(fill) = fill {
        out.extend(std::iter::repeat_n(fill, width.saturating_sub(digits.len())));
    }
    out.push_str(&digits);
}

fn push(directive: char, pad: Option<char>, moment: &Moment, out: &mut String) {
    let hour = moment.second_of_day / 3600;
    let minute = moment.second_of_day / 60 % 60;
    let second = moment.second_of_day % 60;
    let half = if hour % 12 == 0 { 12 } else { hour % 12 };
    let day_name = DAYS[moment.weekday as usize];
    let month_name = MONTHS[(moment.month - 1) as usize];
    let mut pushed = |parts: &str| {
        for c in parts.chars() {
            if c.is_ascii_alphabetic() {
                push(c, None, moment, out);
            } else {
                out.push(c);
            }
        }
    };
    match directive {
        'c' => return pushed("a b e T Y"),
        'D' | 'x' => return pushed("m/d/y"),
        'F' => return pushed("Y-m-d"),
        'R' => return pushed("H:M"),
        'T' | 'X' => return pushed("H:M:S"),
        'r' => return pushed("I:M:S p"),
        _ => {}
    }
    match directive {
        'a' => out.push_str(&day_name[..3]),
        'A' => out.push_str(day_name),
        'b' | 'h' => out.push_str(&month_name[..3]),
        'B' => out.push_str(month_name),
        'C' => number(moment.year / 100, 2, '0', pad, out),
        'd' => number(moment.day, 2, '0', pad, out),
        'e' => number(moment.day, 2, ' ', pad, out),
        'f' => out.push_str("000000"),
        'H' => number(hour, 2, '0', pad, out),
        'I' => number(half, 2, '0', pad, out),
        'j' => number(moment.day_of_year + 1, 3, '0', pad, out),
        'k' => number(hour, 2, ' ', pad, out),
        'l' => number(half, 2, ' ', pad, out),
        'm' => number(moment.month, 2, '0', pad, out),
        'M' => number(minute, 2, '0', pad, out),
        'n' => out.push('\n'),
        'p' => out.push_str(if hour < 12 { "AM" } else { "PM" }),
        'P' => out.push_str(if hour < 12 { "am" } else { "pm" }),
        'S' => number(second, 2, '0', pad, out),
        't' => out.push('\t'),
        'u' => number((moment.weekday + 6) % 7 + 1, 1, '0', pad, out),
        'U' => number((moment.day_of_year + 7 - moment.weekday) / 7, 2, '0', pad, out),
        'w' => number(moment.weekday, 1, '0', pad, out),
        'W' => {
            number((moment.day_of_year + 7 - (moment.weekday + 6) % 7) / 7, 2, '0', pad, out);
        }
        'y' => number(moment.year % 100, 2, '0', pad, out),
        'Y' => number(moment.year, 4, '0', pad, out),
        // The moment has no zone, as datetime.now() has none.
        'z' | 'Z' => {}
        '%' => out.push('%'),
        other => {
            out.push('%');
            out.push(other);
        }
    }
}
