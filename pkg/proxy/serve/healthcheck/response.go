//go:build linux

package healthcheck

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// response is the response to a load balancer about a Service in one family, without the proxy's own health, which is
// determined when the response is written.
type response struct {
	service   model.ObjectName
	endpoints int // ready ones on this node
}

// responseBody is kube-proxy's JSON, with the same order of fields.
type responseBody struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int  `json:"localEndpoints"`
	ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
}

// write writes the response. The write fails only if the client has disconnected; then no client reads an error.
func (r response) write(w http.ResponseWriter, isHealthy bool) {
	content := responseBody{LocalEndpoints: r.endpoints, ServiceProxyHealthy: isHealthy}
	content.Service.Namespace, content.Service.Name = r.service.Namespace, r.service.Name
	body, err := json.MarshalIndent(content, "", "\t")
	if err != nil {
		http.Error(w, "encode the response: "+err.Error(), http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(r.endpoints))
	if r.endpoints == 0 || !isHealthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(body)
}
