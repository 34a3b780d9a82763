package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/accounting"
)

// accountFlags say whether traffic is counted, and by what.
type accountFlags struct {
	by          string
	maxServices uint
	keysText    string

	keys []string // after Validate
}

// What is counted, and for how many Services and topology keys at most.
const (
	accountOff      = "off"
	accountTotals   = "totals"
	accountServices = "services"

	usualAccountServices = 500
	maxAccountServices   = 10_000
	maxAccountKeys       = 16
)

func (f *accountFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.by, "account", accountOff,
		"count connections and their bytes by where their endpoint is, and by the topology key that it matches: `WHAT` is off; totals, of "+
			"this node; or services, of each Service too. A connection counts when conntrack forgets it, up to two minutes after its "+
			"last packet, and a long one each minute")
	flags.UintVar(&f.maxServices, "account-max-services", usualAccountServices,
		fmt.Sprintf("`NUMBER` of Services that --account=services names, 1 to %d; others count together. Each makes at most %d series on "+
			"average", maxAccountServices, 3*accounting.CellsPerService))
	usual := []string{string(policy.Hostname), string(policy.Zone), string(policy.Region)}
	flags.StringVar(&f.keysText, "account-keys", strings.Join(usual, ","),
		fmt.Sprintf("topology `KEYS` that --account counts apart, comma-separated, at most %d; all others count together, because any "+
			"user may invent some", maxAccountKeys))
}

// Validate checks the flags.
func (f *accountFlags) Validate() error {
	errs := []error{cli.OneOf("account", f.by, accountOff, accountTotals, accountServices)}
	if f.maxServices == 0 || f.maxServices > maxAccountServices {
		errs = append(errs, fmt.Errorf("--account-max-services %d: want 1 to %d", f.maxServices, maxAccountServices))
	}
	if f.keys = nil; f.keysText != "" {
		f.keys = strings.Split(f.keysText, ",")
	}
	if len(f.keys) > maxAccountKeys {
		errs = append(errs, fmt.Errorf("--account-keys has %d keys: want at most %d", len(f.keys), maxAccountKeys))
	}
	for i, key := range f.keys {
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("--account-keys: %q is not the key of a label: %s", key, strings.Join(wrong, "; ")))
		}
		if slices.Contains(f.keys[:i], key) {
			errs = append(errs, fmt.Errorf("--account-keys has %s twice", key))
		}
	}
	return errors.Join(errs...)
}

// settings are what the flags ask for; nil if nothing is counted.
func (f *accountFlags) settings() *accounting.Settings {
	if f.by == accountOff {
		return nil
	}
	return &accounting.Settings{PerService: f.by == accountServices, MaxServices: int(f.maxServices), Keys: f.keys}
}
