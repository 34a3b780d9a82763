package status

import (
	"encoding/json"
	"net/http"
	"time"
)

// Handler serves /healthz, /livez and /readyz, each with the status 200 (yes) or 503 (no) and the reason as JSON. now
// is the clock.
//
// /livez is for the kubelet and reports only the proxy's health. /healthz is for load balancers, and also requires that
// the node may get new connections. A node that is about to be deleted may not, although its proxy is healthy
// (KEP-3836).
func (s *Status) Handler(now func() time.Time) http.Handler {
	mux := http.NewServeMux()
	serve := func(path string, evaluate func(Health) (ok bool, page any)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			ok, page := evaluate(s.Health(now()))
			code := respond(w, ok, page)
			if s.OnResponse != nil {
				s.OnResponse(path, code)
			}
		})
	}
	serve("/healthz", func(v Health) (bool, any) { return v.Healthy && v.NodeEligible, newHealthPage(v) })
	serve("/livez", func(v Health) (bool, any) { return v.Healthy, newLivePage(v) })
	serve("/readyz", func(v Health) (bool, any) { return v.Ready, newReadyPage(v) })
	return mux
}

// respond writes a page and returns its HTTP status. The write fails only if the client has disconnected; then no
// client reads an error.
func respond(w http.ResponseWriter, ok bool, page any) int {
	body, err := json.MarshalIndent(page, "", "  ")
	if err != nil {
		http.Error(w, "encode the page: "+err.Error(), http.StatusInternalServerError)
		return http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	code := http.StatusOK
	if !ok {
		code = http.StatusServiceUnavailable
	}
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n'))
	return code
}
