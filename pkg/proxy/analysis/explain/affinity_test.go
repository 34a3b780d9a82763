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
		oneEndpoint  = "A client keeps its endpoint for 3h after its newest connection, whichever frontend it dials."
		twoEndpoints = "A client keeps two endpoints for 3h after its newest connection: one for frontends that a Local policy restricts " +
			"to this node, and one for all others."
	)
	setExternalLocal := func(service *model.Service) { service.ExternalTrafficLocal = true }
	setInternalLocal := func(service *model.Service) { service.InternalTrafficLocal = true }
	removeExternal := func(service *model.Service) {
		service.LoadBalancerIPs, service.ExternalIPs, service.Ports[0].NodePort = nil, nil, 0
	}
	local, remote := endpoint("10.244.1.5", "node-a", true), endpoint("10.244.2.5", "node-b", true)
	tests := map[string]struct {
		changes  []func(*model.Service)
		endpoint model.SliceEndpoint
		want     string
	}{
		"no policy is Local":             {nil, local, oneEndpoint},
		"externalTrafficPolicy is Local": {[]func(*model.Service){setExternalLocal}, local, twoEndpoints},
		"internalTrafficPolicy is Local": {[]func(*model.Service){setInternalLocal}, local, twoEndpoints},
		"both policies are Local":        {[]func(*model.Service){setInternalLocal, setExternalLocal}, local, twoEndpoints},
		"internalTrafficPolicy is Local, and there is no external frontend": {[]func(*model.Service){setInternalLocal, removeExternal}, local,
			oneEndpoint},
		"externalTrafficPolicy is Local, and there is no external frontend": {[]func(*model.Service){setExternalLocal, removeExternal}, local,
			oneEndpoint},
		"externalTrafficPolicy is Local, and no endpoint is on this node": {[]func(*model.Service){setExternalLocal}, remote, oneEndpoint},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			service := exposedService()
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
