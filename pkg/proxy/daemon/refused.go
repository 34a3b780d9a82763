package daemon

import (
	"maps"
	"slices"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
)

// refusals are the Services that the kernel refuses, for the page that explain reads.
type refusals struct {
	mutex     sync.Mutex
	byService map[model.ObjectName]proxy.Refused
}

// update takes a report in.
func (r *refusals) update(report proxy.Report) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.byService == nil {
		r.byService = map[model.ObjectName]proxy.Refused{}
	}
	for _, refused := range report.Refused {
		r.byService[refused.Service] = refused
	}
	for _, service := range report.NoLongerRefused {
		delete(r.byService, service)
	}
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
