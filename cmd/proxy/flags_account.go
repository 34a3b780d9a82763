package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/accounting"
)

// accountFlags configure whether traffic is counted, and with which labels.
type accountFlags struct {
	text string

	settings *accounting.Settings // after Validate; nil if nothing is counted
}

// The values, and the maximum numbers of Services and topology keys.
const (
	accountOff      = "off"
	accountTotals   = "totals"
	accountServices = "services"
	accountKey      = "key"

	defaultAccountServices = 500
	maxAccountServices     = 10_000
	maxAccountKeys         = 16
)

func (f *accountFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.text, "traffic-accounting", accountOff,
		fmt.Sprintf("`SCOPE` of the counts of connections and bytes, by the endpoint's locality and by the topology key that it matches: off; "+
			"totals, of this node; or services, also of each Service. services=NUMBER counts that many Services separately, 1 to %d, instead of "+
			"%d, and the others together. Each has at most %d series on average. key=KEY, once for each of up to %d keys, counts these "+
			"separately instead of the hostname, the zone and the region, and all others together. Example: services=1000,key=example.com/rack. "+
			"A connection is counted when its conntrack entry is removed, up to two minutes after its last packet, and a long one every minute",
			maxAccountServices, defaultAccountServices, 3*accounting.PairsPerService, maxAccountKeys))
}

// Validate checks the flag.
func (f *accountFlags) Validate() error {
	settings, err := accountSettings(f.text)
	if err != nil {
		return fmt.Errorf("--traffic-accounting %q: %w", f.text, err)
	}
	f.settings = settings
	return nil
}

// accountSettings parses the flag's value; nil means that nothing is counted.
func accountSettings(text string) (*accounting.Settings, error) {
	scope, rest, hasKeys := strings.Cut(text, ",")
	if scope == accountOff && !hasKeys {
		return nil, nil
	}
	name, number, hasNumber := strings.Cut(scope, "=")
	settings := &accounting.Settings{PerService: name == accountServices, MaxServices: defaultAccountServices}
	switch {
	case scope == accountOff:
		return nil, fmt.Errorf("%s counts nothing, and takes no key", accountOff)
	case scope != accountTotals && name != accountServices:
		return nil, fmt.Errorf("must be %s, %s, %s or %s=NUMBER, and then %s=KEY for each topology key to count separately, with commas",
			accountOff, accountTotals, accountServices, accountServices, accountKey)
	case hasNumber:
		limit, err := strconv.ParseUint(number, 10, 32)
		if err != nil || limit == 0 || limit > maxAccountServices {
			return nil, fmt.Errorf("the number of Services is %q, but must be from 1 to %d", number, maxAccountServices)
		}
		settings.MaxServices = int(limit)
	}
	if !hasKeys {
		settings.Keys = []string{string(policy.Hostname), string(policy.Zone), string(policy.Region)}
		return settings, nil
	}
	var err error
	settings.Keys, err = accountKeys(rest)
	return settings, err
}

// accountKeys returns the keys of a list of key=KEY.
func accountKeys(text string) (keys []string, err error) {
	parts := strings.Split(text, ",")
	if len(parts) > maxAccountKeys {
		return nil, fmt.Errorf("%d keys are given, but at most %d are allowed", len(parts), maxAccountKeys)
	}
	for _, part := range parts {
		key, ok := strings.CutPrefix(part, accountKey+"=")
		problems := validation.IsQualifiedName(key)
		switch {
		case !ok:
			return nil, fmt.Errorf("%q must be %s=KEY", part, accountKey)
		case len(problems) > 0:
			return nil, fmt.Errorf("%q is not a label key: %s", key, strings.Join(problems, "; "))
		case slices.Contains(keys, key):
			return nil, fmt.Errorf("key %s is given twice", key)
		}
		keys = append(keys, key)
	}
	return keys, nil
}
