package apiserver

import (
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// handoffDelay is how long a Service stays active after another proxy became responsible for it. The other proxy needs
// time until it serves the Service: kube-proxy syncs once a second by default (minSyncPeriod), a sync takes a while,
// and kube-proxy sees the endpoints only after the EndpointSlice controller has removed the label from the slices, too.
// While neither serves the Service, new connections fail. While both do, the proxy whose rules come first in the kernel
// serves a connection.
const handoffDelay = 5 * time.Second

// startHandoff starts the handoff of an object to another proxy, and reports whether its last known good version stays
// active for a while. During the handoff only its deletion or return has an effect. An object of that name with another
// UID shows that ours was deleted.
//
// The Service's health check port is released at once: two processes cannot listen on it, and kube-proxy retries only
// with a later sync.
func (s *state) startHandoff(key convert.ObjectKey, uid string) (staysActive bool) {
	last := s.objects[key.Kind][key.Name]
	switch {
	case last.value == nil || last.uid != uid:
		return false
	case s.handoffs.Has(key):
		return true
	}
	s.handoffs.Schedule(key, s.now.Add(handoffDelay))
	if service, isService := last.value.(*model.Service); isService && service.HealthCheckNodePort != 0 {
		withoutPort := *service
		withoutPort.HealthCheckNodePort = 0
		s.objects[key.Kind][key.Name] = storedObject{uid, &withoutPort}
		s.decide(key, &withoutPort)
	}
	return true
}
