package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/forecast"
)

// gateFlags are the limits that each Service must keep in a forecast. All of them are numbers or percentages.
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
		parse      func(string) (float64, error)
	}{
		{"max-load", f.maxLoad, &f.limits.MaxLoad, forecast.ParseLoad},
		{"min-near", f.minNear, &f.limits.MinNear, forecast.ParseShare},
		{"max-refused", f.maxRefused, &f.limits.MaxRefused, forecast.ParseShare},
	} {
		if !f.flags.Changed(gate.name) {
			continue
		}
		limit, err := gate.parse(gate.text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s %s %w", gate.name, cmp.Or(gate.text, `""`), err))
		}
		*gate.limit = &limit
	}
	return errors.Join(errs...)
}

func (f *gateFlags) isGate() bool { return f.limits != forecast.Limits{} }
