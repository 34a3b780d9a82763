package certs

import (
	"log/slog"
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
	// times as long as its certificates, or longer: one that need not be renewed would cut its certificates short, and they
	// would always be due.
	CA, Leaf time.Duration
	// TrustDelay is how long every configuration must have trusted a CA before a certificate of it is served, so that every
	// API server has received it, however far it lags behind.
	TrustDelay time.Duration

	Log      *slog.Logger
	Observer Observer
}

// The defaults.
const (
	DefaultCA     = 10 * 365 * 24 * time.Hour
	DefaultLeaf   = 365 * 24 * time.Hour
	DefaultSettle = time.Minute
)

// ServiceNames are the DNS names of a Service in a cluster whose domain is cluster.local. API servers use the first
// one.
func ServiceNames(service, namespace string) []string {
	short := service + "." + namespace
	return []string{short + ".svc", short, short + ".svc.cluster.local"}
}
