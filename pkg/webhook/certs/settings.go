package certs

import (
	"log/slog"
	"time"
)

// Settings configure SelfSigned.
type Settings struct {
	// Namespace and Secret identify the Secret that the replicas share.
	Namespace, Secret string
	// Mutating and Validating are the names of the webhook configurations whose caBundle is maintained. One that does not
	// exist is ignored; an empty name means none.
	Mutating, Validating string
	// Names are the DNS names of the webhook. API servers use the first one. See ServiceNames.
	Names []string

	// CA and Leaf are the lifetimes of certificates. They are renewed when a third of that is left. CA must be at least
	// three times Leaf: otherwise a CA that need not be renewed would shorten its certificates, and they would always be
	// due.
	CA, Leaf time.Duration
	// TrustDelay is how long every configuration must have trusted a CA before a certificate of it is served, so that
	// every API server has received it, however far it lags behind.
	TrustDelay time.Duration

	Log      *slog.Logger
	Observer Observer
}

// The defaults.
const (
	DefaultCA         = 10 * 365 * 24 * time.Hour
	DefaultLeaf       = 365 * 24 * time.Hour
	DefaultTrustDelay = time.Minute
)

// ServiceNames returns the DNS names of a Service in a cluster whose domain is cluster.local. API servers use the first
// one.
func ServiceNames(service, namespace string) []string {
	short := service + "." + namespace
	return []string{short + ".svc", short, short + ".svc.cluster.local"}
}
