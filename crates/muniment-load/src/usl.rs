//! The Universal Scalability Law: how throughput grows with the number of clients, and where it
//! stops growing.
//!
//! X(N) = λN / (1 + σ(N − 1) + κN(N − 1)), where λ is the rate of one client, σ the share of work that is
//! done one after the other (contention), and κ the cost for every pair of clients (coherence). Source: N.
//! Gunther, "Guerrilla Capacity Planning", 2007. It is fitted by least squares on X (Levenberg–Marquardt),
//! with σ and κ between 0 and 1.

use crate::rng::Rng;

/// The number of fits of the bootstrap.
const RESAMPLES: usize = 1000;
/// With fewer points than this, a fit has little meaning.
pub const ENOUGH: usize = 6;

/// A parameter with its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The value that fits best.
    pub value: f64,
    /// Its standard error: √diag((JᵀJ)⁻¹·RSS/(n − p)); 0 for a parameter on its bound.
    pub error: f64,
    /// Its 95 % interval by bootstrap.
    pub interval: (f64, f64),
}

/// A fitted law.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The rate of one client.
    pub lambda: Estimate,
    /// Contention.
    pub sigma: Estimate,
    /// Coherence.
    pub kappa: Estimate,
    /// The residual standard error, in the unit of X.
    pub residual: f64,
    /// The number of clients with the highest throughput; `None` if there is no knee, because throughput does
    /// not provably fall.
    pub knee: Option<f64>,
    /// True if the knee lies beyond the measured range.
    pub extrapolated: bool,
    /// The number of points.
    pub points: usize,
}

/// λ, σ, κ.
type Parameters = [f64; 3];

/// X(n) for these parameters.
pub fn throughput(p: Parameters, n: f64) -> f64 {
    let [lambda, sigma, kappa] = p;
    lambda * n / (1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0))
}

impl Fit {
    /// Fits the law to (clients, throughput) pairs. `None` if there are fewer than three different numbers of
    /// clients, or throughputs that are not positive numbers.
    pub fn new(points: &[(f64, f64)]) -> Option<Fit> {
        let mut clients: Vec<f64> = points.iter().map(|p| p.0).collect();
        clients.sort_by(f64::total_cmp);
        clients.dedup();
        let sound = |(n, x): &(f64, f64)| n.is_finite() && *n >= 1.0 && x.is_finite() && *x > 0.0;
        if clients.len() < 3 || !points.iter().all(sound) {
            return None;
        }
        let (best, free) = bounded(points)?;
        let residuals: Vec<f64> = points
            .iter()
            .map(|(n, x)| x - throughput(best, *n))
            .collect();
        let rss: f64 = residuals.iter().map(|r| r * r).sum();
        let used = free.iter().filter(|f| **f).count();
        let spare = points.len().saturating_sub(used);
        // With as many points as parameters, there is nothing left from which to compute the variance.
        let variance = if spare > 0 { rss / spare as f64 } else { 0.0 };
        let errors = errors(points, best, free, variance);
        let intervals = bootstrap(points, best, &residuals, used);
        let estimate = |value: f64, error: f64, interval: (f64, f64)| Estimate {
            value,
            error,
            interval,
        };
        let ([lambda, sigma, kappa], [l, s, k], [il, is, ik]) = (best, errors, intervals);
        let shown = kappa > 0.0 && ik.0 > 0.0;
        let knee = shown.then(|| ((1.0 - sigma) / kappa).sqrt());
        Some(Fit {
            lambda: estimate(lambda, l, il),
            sigma: estimate(sigma, s, is),
            kappa: estimate(kappa, k, ik),
            residual: variance.sqrt(),
            extrapolated: knee.is_some_and(|k| clients.last().is_some_and(|n| k > *n)),
            knee,
            points: points.len(),
        })
    }

    /// X(n) of the fitted law.
    pub fn at(&self, n: f64) -> f64 {
        throughput(self.parameters(), n)
    }

    /// Amdahl's limit λ/σ, which no number of clients can exceed; infinite without contention.
    pub fn limit(&self) -> f64 {
        self.lambda.value / self.sigma.value
    }

    fn parameters(&self) -> Parameters {
        [self.lambda.value, self.sigma.value, self.kappa.value]
    }
}

/// The best fit within the bounds, and which of its parameters are free.
fn bounded(points: &[(f64, f64)]) -> Option<(Parameters, [bool; 3])> {
    let start = points.iter().map(|(n, x)| x / n).fold(0.0, f64::max);
    let mut best: Option<(f64, Parameters, [bool; 3])> = None;
    // A parameter whose best value is outside its bound is set to the bound.
    for free in [
        [true, true, true],
        [true, true, false],
        [true, false, true],
        [true, false, false],
    ] {
        let from = [
            start,
            if free[1] { 0.01 } else { 0.0 },
            if free[2] { 1e-4 } else { 0.0 },
        ];
        let Some((p, rss)) = minimize(points, from, free) else {
            continue;
        };
        let inside = p[0] > 0.0 && (0.0..=1.0).contains(&p[1]) && (0.0..=1.0).contains(&p[2]);
        if inside && best.as_ref().is_none_or(|b| rss < b.0 * (1.0 - 1e-12)) {
            best = Some((rss, p, free));
        }
    }
    best.map(|(_, p, free)| (p, free))
}

/// The derivatives of X(n) by λ, σ and κ.
fn gradient(p: Parameters, n: f64) -> Parameters {
    let [lambda, sigma, kappa] = p;
    let d = 1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0);
    [
        n / d,
        -lambda * n * (n - 1.0) / (d * d),
        -lambda * n * n * (n - 1.0) / (d * d),
    ]
}

fn rss(points: &[(f64, f64)], p: Parameters) -> f64 {
    points
        .iter()
        .map(|(n, x)| (x - throughput(p, *n)).powi(2))
        .sum()
}

/// Levenberg–Marquardt over the free parameters. Returns the parameters and the sum of squares.
fn minimize(
    points: &[(f64, f64)],
    start: Parameters,
    free: [bool; 3],
) -> Option<(Parameters, f64)> {
    let mut p = start;
    let mut sum = rss(points, p);
    let mut damping = 1e-3;
    for _ in 0..500 {
        let (a, g) = normal(points, p, free);
        let mut damped = a;
        for i in 0..3 {
            damped[i][i] += damping * a[i][i].max(1e-300);
        }
        let step = solve(damped, g)?;
        let next = [p[0] + step[0], p[1] + step[1], p[2] + step[2]];
        let new = rss(points, next);
        if new.is_finite() && new <= sum {
            let done = sum - new <= 1e-15 * sum
                && (0..3).all(|i| step[i].abs() <= 1e-12 * (p[i].abs() + 1e-12));
            p = next;
            sum = new;
            damping = (damping / 10.0).max(1e-15);
            if done {
                break;
            }
        } else {
            damping *= 10.0;
            if damping > 1e12 {
                break;
            }
        }
    }
    sum.is_finite().then_some((p, sum))
}

/// JᵀJ and Jᵀr. A parameter that is not free has the row of the unit matrix.
fn normal(points: &[(f64, f64)], p: Parameters, free: [bool; 3]) -> ([[f64; 3]; 3], Parameters) {
    let mut a = [[0.0; 3]; 3];
    let mut g = [0.0; 3];
    for (n, x) in points {
        let j = gradient(p, *n);
        let r = x - throughput(p, *n);
        for i in (0..3).filter(|i| free[*i]) {
            g[i] += j[i] * r;
            for k in (0..3).filter(|k| free[*k]) {
                a[i][k] += j[i] * j[k];
            }
        }
    }
    for i in (0..3).filter(|i| !free[*i]) {
        a[i][i] = 1.0;
    }
    (a, g)
}

/// Solves a·x = b by elimination with pivots. The rows are scaled, because σ and κ differ by orders of
/// magnitude.
fn solve(mut a: [[f64; 3]; 3], mut b: Parameters) -> Option<Parameters> {
    let scale: [f64; 3] = std::array::from_fn(|i| a[i][i].abs().sqrt().max(1e-150));
    for i in 0..3 {
        for k in 0..3 {
            a[i][k] /= scale[i] * scale[k];
        }
        b[i] /= scale[i];
    }
    for i in 0..3 {
        let pivot = (i..3).max_by(|x, y| a[*x][i].abs().total_cmp(&a[*y][i].abs()))?;
        if a[pivot][i].abs() < 1e-14 {
            return None;
        }
        a.swap(i, pivot);
        b.swap(i, pivot);
        for r in i + 1..3 {
            let f = a[r][i] / a[i][i];
            let above = a[i];
            for (x, y) in a[r].iter_mut().zip(above).skip(i) {
                *x -= f * y;
            }
            b[r] -= f * b[i];
        }
    }
    let mut x = [0.0; 3];
    for i in (0..3).rev() {
        let known: f64 = (i + 1..3).map(|k| a[i][k] * x[k]).sum();
        x[i] = (b[i] - known) / a[i][i];
    }
    Some(std::array::from_fn(|i| x[i] / scale[i]))
}

/// The standard errors of the free parameters.
fn errors(points: &[(f64, f64)], p: Parameters, free: [bool; 3], variance: f64) -> Parameters {
    let (a, _) = normal(points, p, free);
    std::array::from_fn(|i| {
        let mut unit = [0.0; 3];
        unit[i] = 1.0;
        match solve(a, unit) {
            Some(column) if free[i] => (column[i] * variance).max(0.0).sqrt(),
            _ => 0.0,
        }
    })
}

/// The 95 % intervals of λ, σ and κ: repeats the fit with residuals that are drawn anew (and enlarged to
/// their size without the fit).
fn bootstrap(
    points: &[(f64, f64)],
    best: Parameters,
    residuals: &[f64],
    used: usize,
) -> [(f64, f64); 3] {
    let n = points.len();
    let spare = n.saturating_sub(used).max(1);
    let wider = (n as f64 / spare as f64).sqrt();
    let mut rng = Rng::new(0x0515);
    let mut drawn: [Vec<f64>; 3] = Default::default();
    let mut again = points.to_vec();
    for _ in 0..RESAMPLES {
        for (p, (clients, _)) in again.iter_mut().zip(points) {
            let r = residuals
                .get(rng.below(n as u64) as usize)
                .copied()
                .unwrap_or(0.0);
            p.1 = throughput(best, *clients) + r * wider;
        }
        if let Some((p, _)) = bounded(&again) {
            drawn.iter_mut().zip(p).for_each(|(d, x)| d.push(x));
        }
    }
    drawn.map(|mut d| {
        d.sort_by(f64::total_cmp);
        let at = |q: f64| {
            let i = (q * d.len().saturating_sub(1) as f64).round() as usize;
            d.get(i).copied().unwrap_or(f64::NAN)
        };
        (at(0.025), at(0.975))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn near(got: f64, want: f64, share: f64) {
        assert!((got / want - 1.0).abs() < share, "{got} instead of {want}");
    }

    #[test]
    fn the_published_fit_of_specsdm91() {
        let points = [
            (1.0, 64.9),
            (18.0, 995.9),
            (36.0, 1652.4),
            (72.0, 1853.2),
            (108.0, 1828.9),
            (144.0, 1775.0),
            (216.0, 1702.2),
        ];
        let f = Fit::new(&points).unwrap();
        near(f.sigma.value, 0.027_728_5, 1e-4);
        near(f.sigma.error, 0.009_121_7, 1e-3);
        near(f.kappa.value, 1.044e-4, 1e-3);
        near(f.kappa.error, 1.99e-5, 1e-2);
        near(f.lambda.value, 89.9952, 1e-5);
        near(f.lambda.error, 14.2135, 1e-4);
        near(f.residual, 82.85, 1e-3);
        near(f.knee.unwrap(), 96.5196, 1e-4);
        near(f.at(96.5196), 1884.0, 1e-3);
        near(f.limit(), 3245.589, 1e-4);
        assert!(!f.extrapolated);
        assert!(f.kappa.interval.0 < f.kappa.value && f.kappa.value < f.kappa.interval.1);
    }

    #[test]
    fn made_up_points_give_back_what_they_were_made_of() {
        let points = [
            (1.0, 1.0),
            (2.0, 1.8868),
            (4.0, 3.0769),
            (6.0, 3.5294),
            (8.0, 3.5398),
            (10.0, 3.3557),
        ];
        let f = Fit::new(&points).unwrap();
        near(f.sigma.value, 0.02, 1e-2);
        near(f.kappa.value, 0.02, 1e-2);
        near(f.lambda.value, 1.0, 1e-3);
    }

    #[test]
    fn the_raytracer_has_no_knee() {
        let x = [
            20.0, 78.0, 130.0, 170.0, 190.0, 200.0, 210.0, 230.0, 260.0, 280.0, 310.0,
        ];
        let n = [
            1.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 28.0, 32.0, 48.0, 64.0,
        ];
        let points: Vec<(f64, f64)> = n.into_iter().zip(x).collect();
        let six = Fit::new(points.get(..6).unwrap()).unwrap();
        near(six.sigma.value, 0.024_44, 1e-2);
        near(six.kappa.value, 0.001_63, 1e-2);
        near(six.lambda.value, 20.856, 1e-3);
        // Without bounds, coherence would be negative; on its bound, there is no knee.
        let free = minimize(&points, [20.0, 0.01, 1e-4], [true; 3]).unwrap().0;
        near(free[2], -2.01e-4, 1e-2);
        let all = Fit::new(&points).unwrap();
        assert_eq!((all.kappa.value, all.knee), (0.0, None));
        near(all.sigma.value, 0.057_770_8, 1e-4);
        near(all.lambda.value, 21.8488, 1e-4);
    }

    #[test]
    fn points_that_cannot_be_fitted_and_a_straight_line() {
        assert!(Fit::new(&[(1.0, 1.0), (2.0, 2.0)]).is_none());
        assert!(Fit::new(&[(1.0, 1.0), (2.0, f64::NAN), (3.0, 2.0)]).is_none());
        // A straight line has neither contention nor a knee.
        let f = Fit::new(&[(1.0, 10.0), (2.0, 20.0), (4.0, 40.0), (8.0, 80.0)]).unwrap();
        assert!(f.sigma.value < 1e-6 && f.knee.is_none());
    }
}
