package certs

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Settings are what SelfMade makes, and where it keeps it.
type Settings struct {
	// Namespace and Secret are where the replicas keep what they share.
	Namespace, Secret string
	// Mutating and Validating are the names of the webhook configurations whose caBundle is kept. One that does not exist
	// is ignored; one without a name is not looked for.
	Mutating, Validating string
	// Names are the DNS names of the webhook. The API server calls it by the first one. See ServiceNames.
	Names []string

	// CA and Leaf are how long certificates are valid. They are renewed when a third of that is left. A CA lives three
	// times as long as its certificates, or longer.
	CA, Leaf time.Duration
	// Settle is how long every configuration must have trusted a CA before a certificate of it is served, so that every
	// API server has received it, however far it lags behind.
	Settle time.Duration

	Log      *slog.Logger
	Observer Observer
}

// The defaults.
const (
	DefaultCA     = 10 * 365 * 24 * time.Hour
	DefaultLeaf   = 365 * 24 * time.Hour
	DefaultSettle = time.Minute
)

// shortest is a bound for tests: certificates count in seconds.
const shortest = 3 * time.Second

// ServiceNames are the DNS names of a Service in a cluster whose domain is cluster.local. API servers use the first
// one.
func ServiceNames(service, namespace string) []string {
	short := service + "." + namespace
	return []string{short + ".svc", short, short + ".svc.cluster.local"}
}

// complete fills in what was left out, and refuses what cannot work.
func (s Settings) complete() (Settings, error) {
	for setting, fallback := range map[*time.Duration]time.Duration{&s.CA: DefaultCA, &s.Leaf: DefaultLeaf, &s.Settle: DefaultSettle} {
		if *setting == 0 {
			*setting = fallback
		}
	}
	switch {
	case s.Namespace == "" || s.Secret == "":
		return s, errors.New("certificates need a Secret: its namespace and its name")
	case len(s.Names) == 0 || slices.Contains(s.Names, ""):
		return s, errors.New("certificates need a DNS name")
	case s.Leaf < shortest || s.Settle < 0:
		return s, fmt.Errorf("certificates cannot be valid for %s and trusted after %s", s.Leaf, s.Settle)
	case s.CA < 3*s.Leaf: // otherwise a CA that need not be renewed would cut its certificates short, and they would always be due
		return s, fmt.Errorf("a CA cannot be valid for %s if its certificates are for %s: it needs three times as long", s.CA, s.Leaf)
	case s.Log == nil || s.Observer == nil:
		return s, errors.New("certificates need a log and an observer")
	}
	return s, nil
}
