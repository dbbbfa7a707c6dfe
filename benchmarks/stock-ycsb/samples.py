"""Whether two samples may come from one distribution."""

import math


def upper_gamma(a, x):
    """The regularised upper incomplete gamma function Q(a, x): a series below a + 1, Lentz's
    continued fraction above (Abramowitz and Stegun 6.5.29 and 6.5.31)."""
    if x <= 0:
        return 1.0
    front = math.exp(-x + a * math.log(x) - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        n = a
        while abs(term) > abs(total) * 1e-15:
            n += 1
            term *= x / n
            total += term
        return max(0.0, 1 - total * front)
    tiny = 1e-300
    b = x + 1 - a
    c = 1 / tiny
    d = 1 / b
    h = d
    for i in range(1, 100000):
        an = -i * (i - a)
        b += 2
        d = 1 / (an * d + b or tiny)
        c = b + an / c or tiny
        h *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return front * h


def two_samples(a, b, least=5):
    """Chi-square of two counts by key. Keys with an expected count below `least` in either
    sample are one class. Gives statistic, degrees of freedom and p."""
    na, nb = sum(a.values()), sum(b.values())
    if not na or not nb:
        return {"chi_square": None, "classes": 0, "degrees_of_freedom": 0, "p": None}
    classes, rest = [], [0, 0]
    for key in a.keys() | b.keys():
        x, y = a.get(key, 0), b.get(key, 0)
        if (x + y) * min(na, nb) / (na + nb) >= least:
            classes.append((x, y))
        else:
            rest[0] += x
            rest[1] += y
    if sum(rest):
        classes.append(tuple(rest))
    ra, rb = math.sqrt(nb / na), math.sqrt(na / nb)
    chi = sum((ra * x - rb * y) ** 2 / (x + y) for x, y in classes)
    freedom = len(classes) - 1
    p = upper_gamma(freedom / 2, chi / 2) if freedom else 1.0
    return {
        "chi_square": chi,
        "classes": len(classes),
        "pooled_keys_share": sum(rest) / (na + nb),
        "degrees_of_freedom": freedom,
        "p": p,
    }


def median(values):
    s = sorted(values)
    n = len(s)
    return s[n // 2] if n % 2 else (s[n // 2 - 1] + s[n // 2]) / 2


# From tables of the distribution: 95 % points.
assert abs(upper_gamma(1 / 2, 3.8415 / 2) - 0.05) < 1e-4
assert abs(upper_gamma(100 / 2, 124.342 / 2) - 0.05) < 1e-4
