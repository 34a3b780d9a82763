package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

func TestAffinityScopeIsReported(t *testing.T) {
	const (
		one = "A client keeps its endpoint for 3h after its newest connection, whichever frontend it dials."
		two = "A client keeps its endpoint for 3h after its newest connection: one where a Local policy keeps it on this node, and one " +
			"everywhere else."
	)
	external := func(service *model.Service) { service.ExternalTrafficLocal = true }
	internal := func(service *model.Service) { service.InternalTrafficLocal = true }
	unexposed := func(service *model.Service) {
		service.LoadBalancerIPs, service.ExternalIPs, service.Ports[0].NodePort = nil, nil, 0
	}
	here, elsewhere := endpoint("10.244.1.5", "node-a", true), endpoint("10.244.2.5", "node-b", true)
	tests := map[string]struct {
		changes  []func(*model.Service)
		endpoint model.SliceEndpoint
		want     string
	}{
		"no policy is Local":             {nil, here, one},
		"externalTrafficPolicy is Local": {[]func(*model.Service){external}, here, two},
		"internalTrafficPolicy is Local": {[]func(*model.Service){internal}, here, two},
		"both policies are Local":        {[]func(*model.Service){internal, external}, here, two},
		"internalTrafficPolicy is Local, and there is no external frontend": {[]func(*model.Service){internal, unexposed}, here, one},
		"externalTrafficPolicy is Local, and there is no external frontend": {[]func(*model.Service){external, unexposed}, here, one},
		"externalTrafficPolicy is Local, and no endpoint is on this node":   {[]func(*model.Service){external}, elsewhere, one},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			service := balanced()
			service.AffinityTimeout = 3 * time.Hour
			for _, change := range test.changes {
				change(service)
			}
			var text strings.Builder
			if err := write("text")(&text, explain.Clients{}.Ports(clusterOf(webSlice(test.endpoint), service), explain.Query{})); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(text.String(), "  affinity   "+test.want+"\n") {
				t.Errorf("the text lacks %q:\n%s", test.want, text.String())
			}
		})
	}
}
