package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/cluster"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/pull"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/metrics"
)

// measureDemand polls all proxies for their demand counts until ctx ends, if --measure-demand is set.
func (w *webhook) measureDemand(ctx context.Context) error {
	if !w.flags.measureDemand {
		return nil
	}
	identity, err := os.Hostname() // in a pod: the pod's name
	if err != nil {
		return fmt.Errorf("--measure-demand: get the name of this replica: %w", err)
	}
	namespace, name, _ := strings.Cut(w.flags.proxyService, "/")
	return demand.Run(ctx, w.manager.GetConfig(), demand.Options{
		Namespace: w.flags.namespace, Identity: identity, Account: w.flags.demandAccount,
		Proxies: types.NamespacedName{Namespace: namespace, Name: name},
		Puller:  pull.New(w.flags.demandPort, nil), Observer: demandObserver{w.recorder}, Log: w.log,
		Settings: cluster.Settings{MeasuredByDefault: w.flags.defaultDemandSource == policy.Measured},
	})
}

// demandObserver records the results in metrics.
type demandObserver struct{ recorder *metrics.Recorder }

// Measured implements demand.Observer.
func (o demandObserver) Measured(round demand.Round) {
	services := make(map[[2]string]metrics.Demand, len(round.Services))
	for service, report := range round.Services {
		namespace, name, _ := strings.Cut(service, "/")
		services[[2]string{namespace, name}] = metrics.Demand{
			Overload: report.Overload.Ratio(), ConnectionsPerMinute: report.ConnectionsPerMinute,
		}
	}
	o.recorder.Measured(round.Reporting, round.Nodes, len(round.Unreported), round.ChangePoints, services)
}

// Queued implements demand.Observer.
func (o demandObserver) Queued(backlog v1alpha1.DemandBacklog) {
	o.recorder.DemandQueued(backlog.Waiting, time.Duration(backlog.LongestSeconds)*time.Second)
}

// Published implements demand.Observer.
func (o demandObserver) Published(operation string) { o.recorder.DemandPublished(operation) }

// LeadEnded implements demand.Observer.
func (o demandObserver) LeadEnded() { o.recorder.MeasuringEnded() }

// MeasureFailed implements demand.Observer.
func (o demandObserver) MeasureFailed() { o.recorder.Failed(metrics.DemandFailure) }
