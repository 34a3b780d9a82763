package apiserver

import (
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// handoffDelay is how long a Service stays in force after it has become another proxy's. The other proxy needs time until
// it serves it: kube-proxy syncs once a second by default (minSyncPeriod), a sync takes a while, and it learns of the
// endpoints only when the EndpointSlice controller has taken the label from the slices, too. While neither serves the
// Service, new connections fail; while both do, each is served by whichever comes first in the kernel.
const handoffDelay = 5 * time.Second

// startHandoff takes in that an object now belongs to another proxy, and reports whether its last good version stays in force
// for a while. Meanwhile only its deletion or return is taken in. An object of that name with another UID shows that
// ours was deleted.
//
// The Service's health check port is released at once: two processes cannot listen there, and kube-proxy tries again
// only with a later sync.
func (s *state) startHandoff(key convert.ObjectKey, uid string) (stays bool) {
	last := s.objects[key.Kind][key.Name]
	switch {
	case last.value == nil || last.uid != uid:
		return false
	case s.handoffs.Has(key):
		return true
	}
	s.handoffs.Schedule(key, s.now.Add(handoffDelay))
	if service, isService := last.value.(*model.Service); isService && service.HealthCheckNodePort != 0 {
		unchecked := *service
		unchecked.HealthCheckNodePort = 0
		s.objects[key.Kind][key.Name] = storedObject{uid, &unchecked}
		s.decide(key, &unchecked)
	}
	return true
}
