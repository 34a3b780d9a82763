package forecast

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

// Limits are limits for each Service: its busiest endpoint's load in multiples of the mean, the smallest share that
// stays in the zone (if zones are known), and the largest share that is refused. Nil means no limit.
type Limits struct{ MaxLoad, MinInZone, MaxRefused *float64 }

// Violations returns a sentence for each Service that violates a limit under the first setting: the present one.
func (r *Report) Violations(limits Limits) []string {
	var sentences []string
	for i := range r.Services {
		service, now := &r.Services[i], &r.Services[i].Projections[0]
		add := func(format string, args ...any) {
			sentences = append(sentences, service.Service+": "+fmt.Sprintf(format, args...))
		}
		if upper := limits.MaxRefused; upper != nil && now.Refused > *upper {
			add("%s of its connections are refused, and --max-refused is %s", percent(now.Refused), percent(*upper))
		}
		if upper := limits.MaxLoad; upper != nil && now.Busiest.Load > *upper {
			add("the expected load of %s is %s times the mean, and --max-load is %g", now.Busiest.Endpoint, times(now.Busiest.Load), *upper)
		}
		if lower := limits.MinInZone; lower != nil && now.Zone < explain.Rounded(*lower*(1-now.UnknownZones)) {
			add("%s of its connections stay in the zone%s, and --min-in-zone is %g", percent(now.Zone), unknownZonesText(now.UnknownZones), *lower)
		}
	}
	return sentences
}

// unknownZonesText states the share of connections whose zones are unknown; empty if there are none.
func unknownZonesText(share float64) string {
	if share == 0 {
		return ""
	}
	return fmt.Sprintf(" (the zones of %s are unknown)", percent(share))
}

// ParseLoad parses a limit of the load as a multiple of the mean: a number, or a percentage.
func ParseLoad(text string) (float64, error) {
	load, err := parseNumber(text)
	switch {
	case err != nil:
		return 0, err
	case load <= 0:
		return 0, errors.New("must be more than 0")
	case load >= suspiciousLoad && !strings.HasSuffix(text, "%"):
		return 0, fmt.Errorf("it is a multiple of the mean; did you mean %s%%?", text)
	}
	return load, nil
}

// suspiciousLoad is the load from which on a number is probably a percentage without its sign.
const suspiciousLoad = 100

// ParseShare parses a limit of a share: a number, or a percentage.
func ParseShare(text string) (float64, error) {
	share, err := parseNumber(text)
	switch {
	case err != nil:
		return 0, err
	case share >= 0 && share <= 1:
		return share, nil
	case share > 1 && share <= 100 && !strings.HasSuffix(text, "%"):
		return 0, fmt.Errorf("must be from 0 to 1, or from 0%% to 100%%; did you mean %s%%?", text)
	}
	return 0, errors.New("must be from 0 to 1, or from 0% to 100%")
}

// parseNumber parses a number, or a percentage.
func parseNumber(text string) (float64, error) {
	digits, isPercent := strings.CutSuffix(text, "%")
	number, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if err != nil || math.IsNaN(number) || math.IsInf(number, 0) {
		return 0, errors.New("must be a number or a percentage")
	}
	if isPercent {
		number /= 100
	}
	return number, nil
}
