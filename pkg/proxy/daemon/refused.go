package daemon

import (
	"maps"
	"slices"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
)

// loggedRefusals is how many Services a sync logs that the kernel refuses. The page /refused lists all of them.
const loggedRefusals = 100

// refusals are the Services that the kernel refuses, for the page that explain asks.
type refusals struct {
	mutex     sync.Mutex
	byService map[model.ObjectName]proxy.Refused
}

// update takes a report in and returns what is new in it: Services that are refused for the first time, or for another
// reason.
func (r *refusals) update(report proxy.Report) []proxy.Refused {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.byService == nil {
		r.byService = map[model.ObjectName]proxy.Refused{}
	}
	var news []proxy.Refused
	for _, refused := range report.Refused {
		before, known := r.byService[refused.Service]
		if !known || before.Err.Error() != refused.Err.Error() || before.InForce != refused.InForce {
			news = append(news, refused)
		}
		r.byService[refused.Service] = refused
	}
	for _, service := range report.NoLongerRefused {
		delete(r.byService, service)
	}
	return news
}

// list returns all of them, by name, in the words of explain.
func (r *refusals) list(node string) explain.Refusals {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	list := explain.Refusals{Node: node, Services: []explain.Refusal{}}
	for _, name := range slices.SortedFunc(maps.Keys(r.byService), model.ObjectName.Compare) {
		refused := r.byService[name]
		list.Services = append(list.Services, explain.Refusal{
			Service: name.String(), Message: refused.Err.Error(),
			Since: refused.Since, Tries: refused.Tries, Next: refused.Next, InForce: refused.InForce,
		})
	}
	return list
}

// reportRefused logs which Services the kernel refuses, and which it takes again, once each, and reports the former as
// Events.
func (o *observer) reportRefused(report proxy.Report) {
	news := o.refused.update(report)
	for i, refused := range news {
		if i == loggedRefusals {
			o.log.Warn("the kernel refuses more Services; the page /refused lists them", "more", len(news)-i)
			break
		}
		o.log.Warn("the kernel refuses a Service; all others are served, and this one is tried again",
			"service", refused.Service.String(), "earlier-version-in-force", refused.InForce, "error", refused.Err)
		o.reporter.refusedByKernel(refused)
	}
	for i, service := range report.NoLongerRefused {
		if i == loggedRefusals {
			break
		}
		o.log.Info("a Service that the kernel refused is in force now, or gone", "service", service.String())
	}
}
