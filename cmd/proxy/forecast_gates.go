package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/forecast"
)

// gateFlags are what each Service must keep in a forecast. All of them are numbers, or percentages.
type gateFlags struct {
	maxLoad, minNear, maxRefused string
	flags                        *pflag.FlagSet

	limits forecast.Limits // after Validate
}

func (f *gateFlags) register(flags *pflag.FlagSet) {
	f.flags = flags
	flags.StringVar(&f.maxLoad, "max-load", "",
		"exit with status 1 if an endpoint expects more than so many `TIMES` the mean, such as 1.5 or 150%; with what-ifs, the mean before")
	flags.StringVar(&f.minNear, "min-near", "",
		"exit with status 1 if less than this `SHARE` of a Service's connections stays in the zone, such as 0.8 or 80%")
	flags.StringVar(&f.maxRefused, "max-refused", "",
		"exit with status 1 if more than this `SHARE` of a Service's connections is refused, such as 0, 0.05 or 5%")
}

// Validate checks the flags.
func (f *gateFlags) Validate() error {
	var errs []error
	f.limits = forecast.Limits{}
	for _, gate := range []struct {
		name, text string
		limit      **float64
		isLoad     bool
	}{{"max-load", f.maxLoad, &f.limits.MaxLoad, true}, {"min-near", f.minNear, &f.limits.MinNear, false},
		{"max-refused", f.maxRefused, &f.limits.MaxRefused, false}} {
		if !f.flags.Changed(gate.name) {
			continue
		}
		limit, err := readShare(gate.text)
		if err == nil && gate.isLoad {
			err = checkLoad(gate.text, limit)
		} else if err == nil {
			err = checkShare(gate.text, limit)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s %s %w", gate.name, cmp.Or(gate.text, `""`), err))
		}
		*gate.limit = &limit
	}
	return errors.Join(errs...)
}

func (f *gateFlags) isGate() bool { return f.limits != forecast.Limits{} }

// readShare reads a number, or a percentage.
func readShare(text string) (float64, error) {
	digits, isPercent := strings.CutSuffix(text, "%")
	number, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if err != nil || math.IsNaN(number) || math.IsInf(number, 0) {
		return 0, errors.New("is neither a number nor a percentage")
	}
	if isPercent {
		number /= 100
	}
	return number, nil
}

// manyTimes and more is probably a percentage without its sign.
const manyTimes = 100

func checkLoad(text string, times float64) error {
	switch {
	case times <= 0:
		return errors.New("must be more than 0")
	case times >= manyTimes && !strings.HasSuffix(text, "%"):
		return fmt.Errorf("is so many times the mean; did you mean %s%%?", text)
	}
	return nil
}

func checkShare(text string, share float64) error {
	switch {
	case share >= 0 && share <= 1:
		return nil
	case share > 1 && share <= 100 && !strings.HasSuffix(text, "%"):
		return fmt.Errorf("must be from 0 to 1, or from 0%% to 100%%; did you mean %s%%?", text)
	}
	return errors.New("must be from 0 to 1, or from 0% to 100%")
}
