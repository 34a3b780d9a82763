package main

import (
	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/forecast"
)

// limitFlags are the limits for each Service in a forecast. All of them are numbers or percentages.
type limitFlags struct{ limits forecast.Limits }

func (f *limitFlags) register(flags *pflag.FlagSet) {
	for _, limitFlag := range []struct {
		name, usage string
		limit       **float64
		parse       func(string) (float64, error)
	}{
		{
			"max-load", "exit with status 1 if the expected load of an endpoint exceeds this many `TIMES` the mean load, such as 1.5 or 150%; " +
				"with hypothetical changes (--scale, ...), relative to the mean before the changes", &f.limits.MaxLoad, forecast.ParseLoad,
		},
		{
			"min-in-zone", "exit with status 1 if less than this `SHARE` of a Service's connections stays in the zone, such as 0.8 or 80%",
			&f.limits.MinInZone, forecast.ParseShare,
		},
		{
			"max-refused", "exit with status 1 if more than this `SHARE` of a Service's connections is refused, such as 0, 0.05 or 5%",
			&f.limits.MaxRefused, forecast.ParseShare,
		},
	} {
		flags.Func(limitFlag.name, limitFlag.usage, func(text string) error {
			limit, err := limitFlag.parse(text)
			*limitFlag.limit = &limit
			return err
		})
	}
}

func (f *limitFlags) hasLimits() bool { return f.limits != forecast.Limits{} }
