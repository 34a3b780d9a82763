package forecast

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/selection/simulate"
)

// Compare returns forecasts of a cluster as it is, and after changes, with the same reference: both have the same
// clients (those that a Service names after the changes, or else before them), and all loads are multiples of the mean
// before. So the load of an endpoint that replaces two is 2 times the mean.
func Compare(before, after Cluster, options Options) (beforeReport, afterReport Report, rejected []model.Finding) {
	options.OnlyNow = true
	clients := clientsIn(before, after)
	beforeForecaster, beforeReport := newForecaster(before, options)
	beforeForecaster.clientsOf, beforeForecaster.means = clients, map[servicePort]mean{}
	beforeForecaster.forecast(&beforeReport, options.Only)
	afterForecaster, afterReport := newForecaster(after, options)
	afterForecaster.clientsOf, afterForecaster.meansBefore = clients, beforeForecaster.means
	afterForecaster.forecast(&afterReport, options.Only)
	return beforeReport, afterReport, convert.SortProblems(append(beforeForecaster.rejected, afterForecaster.rejected...))
}

// clientsIn returns the clients that Services name, in the last of some clusters in which they name any.
func clientsIn(clusters ...Cluster) map[model.ObjectName][]model.ObjectName {
	clients := map[model.ObjectName][]model.ObjectName{}
	for _, c := range clusters {
		for _, object := range c.services {
			if _, isSet := object.Annotations[policy.ClientsAnnotation]; !isSet {
				continue
			}
			topology, _ := convert.TopologyOf(object, c.view)
			service := model.Service{Topology: topology}
			if list := service.Clients(); len(list) > 0 {
				clients[nameOf(object)] = list
			}
		}
	}
	return clients
}

// mean is the load of each endpoint of a port if all had the same, in units of the demand of nodes or clients.
type mean struct {
	load            float64
	isServiceDemand bool
}

// meanOf returns the mean that loads are multiples of: the one before the changes. If no endpoint was usable then, or
// the clients were different, the two cannot be compared, and it is the mean of the port itself.
func (f *forecaster) meanOf(setting Setting, group *endpointGroup, distribution *simulate.Distribution) float64 {
	current := mean{distribution.Mean, distribution.IsServiceDemand}
	if f.means != nil && setting.Name == Now {
		for _, port := range group.ports {
			f.means[port] = current
		}
	}
	if before := f.meansBefore[group.ports[0]]; before.load > 0 && before.isServiceDemand == current.isServiceDemand {
		return before.load
	}
	return current.load
}
