package forecast

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/selection/simulate"
)

// Compare returns forecasts of a cluster as it is, and after changes, with the same reference: both have the same
// clients (those that a Service names after the changes, or else before them), and all loads are multiples of the mean
// before. So an endpoint that replaces two expects 2 times the mean.
func Compare(before, after Cluster, options Options) (was, would Report, rejected []model.Finding) {
	options.OnlyNow = true
	clients := clientsIn(before, after)
	first, was := newForecaster(before, options)
	first.clientsOf, first.means = clients, map[portOf]mean{}
	first.forecast(&was, options.Only)
	second, would := newForecaster(after, options)
	second.clientsOf, second.before = clients, first.means
	second.forecast(&would, options.Only)
	return was, would, convert.SortProblems(append(first.rejected, second.rejected...))
}

// clientsIn returns the clients that Services name, in the last of some clusters in which they name any.
func clientsIn(clusters ...Cluster) map[model.ObjectName][]model.ObjectName {
	clients := map[model.ObjectName][]model.ObjectName{}
	for _, c := range clusters {
		for _, object := range c.services {
			if _, names := object.Annotations[policy.ClientsAnnotation]; !names {
				continue
			}
			topology, _ := convert.TopologyOf(object, c.view)
			named := model.Service{Topology: topology}
			if list := named.Clients(); len(list) > 0 {
				clients[nameOf(object)] = list
			}
		}
	}
	return clients
}

// mean is the load of each endpoint of a port if all had the same, in units of the demand of nodes or clients.
type mean struct {
	load      float64
	ofService bool
}

// meanOf returns the mean that loads are multiples of: the one before the changes. If no endpoint was usable then, or
// the clients were different, the two cannot be compared, and it is the mean of the port itself.
func (f *forecaster) meanOf(setting Setting, portion *endpointGroup, spread *simulate.Distribution) float64 {
	own := mean{spread.Mean, spread.OfService}
	if f.means != nil && setting.Name == Now {
		for _, port := range portion.ports {
			f.means[port] = own
		}
	}
	if before := f.before[portion.ports[0]]; before.load > 0 && before.ofService == own.ofService {
		return before.load
	}
	return own.load
}
