package main

import (
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/certs"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/server"
)

// newRecorder returns the recorder of the metrics that the manager serves. Every count that may appear starts at zero.
func newRecorder() (*metrics.Recorder, error) {
	words := metrics.Words{
		Paths: server.Paths(), Outcomes: server.Outcomes(), Failures: server.Failures(), Refusals: server.Refusals(),
	}
	for _, rule := range rules.Rules() {
		words.Rules = append(words.Rules, string(rule.ID))
	}
	for _, origin := range rules.Origins() {
		words.Sources = append(words.Sources, string(origin))
	}
	for _, setting := range rules.DefaultSettings() {
		words.Settings = append(words.Settings, string(setting))
	}
	for _, operation := range certs.Operations() {
		words.Failures = append(words.Failures, certificateFailure(operation))
	}
	words.Failures = append(words.Failures, topologyFailure, demandFailure)
	return metrics.New(ctrlmetrics.Registry, words)
}

// certObserver counts what goes wrong with certificates among the internal errors.
type certObserver struct{ *metrics.Recorder }

// CertificateFailed is part of certs.Observer.
func (o certObserver) CertificateFailed(operation certs.Operation, _ error) {
	o.Failed(certificateFailure(operation))
}

func certificateFailure(operation certs.Operation) string { return "certificate-" + string(operation) }
