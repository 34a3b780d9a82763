package main

import (
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/vicinity-proxy/vicinity/pkg/admission"
	"github.com/vicinity-proxy/vicinity/pkg/certs"
	"github.com/vicinity-proxy/vicinity/pkg/webhook"
	"github.com/vicinity-proxy/vicinity/pkg/webhookmetrics"
)

// newRecorder returns what counts for the metrics that the manager serves, with every count at zero that may come.
func newRecorder() (*webhookmetrics.Recorder, error) {
	words := webhookmetrics.Words{
		Paths: webhook.Paths(), Outcomes: webhook.Outcomes(), Failures: webhook.Failures(), Refusals: webhook.Refusals(),
	}
	for _, rule := range admission.Rules() {
		words.Rules = append(words.Rules, string(rule.ID))
	}
	for _, source := range admission.Sources() {
		words.Sources = append(words.Sources, string(source))
	}
	for _, setting := range admission.DefaultSettings() {
		words.Settings = append(words.Settings, string(setting))
	}
	for _, operation := range certs.Operations() {
		words.Failures = append(words.Failures, certificateFailure(operation))
	}
	return webhookmetrics.New(metrics.Registry, words)
}

// certObserver counts what goes wrong with certificates among the internal errors.
type certObserver struct{ *webhookmetrics.Recorder }

// CertificateFailed is part of certs.Observer.
func (o certObserver) CertificateFailed(operation certs.Operation, _ error) {
	o.Failed(certificateFailure(operation))
}

func certificateFailure(operation certs.Operation) string { return "certificate-" + string(operation) }
