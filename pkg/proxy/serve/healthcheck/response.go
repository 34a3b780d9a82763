//go:build linux

package healthcheck

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// response is what a load balancer reads about a Service in one family, except for the proxy's own health, which is asked
// for each answer anew.
type response struct {
	service   model.ObjectName
	endpoints int // ready ones on this node
}

// responseBody is kube-proxy's JSON, with its order of fields.
type responseBody struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int  `json:"localEndpoints"`
	ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
}

// write writes the whole answer. Only a client that has gone can make the write fail, and then no client reads an
// error.
func (a response) write(w http.ResponseWriter, isHealthy bool) {
	said := responseBody{LocalEndpoints: a.endpoints, ServiceProxyHealthy: isHealthy}
	said.Service.Namespace, said.Service.Name = a.service.Namespace, a.service.Name
	body, err := json.MarshalIndent(said, "", "\t")
	if err != nil {
		http.Error(w, "encoding the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(a.endpoints))
	if a.endpoints == 0 || !isHealthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(body)
}
