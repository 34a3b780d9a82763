package metrics

import (
	"context"
	"net/url"
	"time"

	"k8s.io/client-go/tools/metrics"
)

// CountAPIRequests counts the requests that this process makes with client-go. The hooks are global, and only the first
// call has an effect: a program calls it once, before it creates a client.
func (r *Recorder) CountAPIRequests() {
	metrics.Register(metrics.RegisterOpts{RequestResult: apiResults{r}, RequestLatency: apiLatencies{r}})
}

type apiResults struct{ recorder *Recorder }

// Increment implements client-go's ResultMetric.
func (a apiResults) Increment(_ context.Context, code, method, host string) {
	a.recorder.Add(apiRequests, 1, code, method, host)
}

type apiLatencies struct{ recorder *Recorder }

// Observe implements client-go's LatencyMetric.
func (a apiLatencies) Observe(_ context.Context, verb string, url url.URL, latency time.Duration) {
	a.recorder.Observe(apiRequestDuration, latency, verb, url.Host)
}
