package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// registration registers metrics one by one, and keeps what went wrong.
type registration struct {
	with prometheus.Registerer
	errs []error
}

func registered[C prometheus.Collector](in *registration, collector C) C {
	if err := in.with.Register(collector); err != nil {
		in.errs = append(in.errs, err)
	}
	return collector
}

func (in *registration) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return registered(in, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}

func (in *registration) gauge(name, help string) prometheus.Gauge {
	return registered(in, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

func (in *registration) moment(name, help string) moment {
	return moment{registered(in, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, nil))}
}

// moment is a gauge that holds a time, and has no series until it is set: zero would be 1970.
type moment struct{ gauge *prometheus.GaugeVec }

func (m moment) set(at time.Time) {
	const second = float64(time.Second)
	m.gauge.WithLabelValues().Set(float64(at.UnixNano()) / second)
}
