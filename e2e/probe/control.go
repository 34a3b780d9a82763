package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
)

// newControl returns the handler of the probe's control API:
//
//	GET    /healthz                   200 while ready, else 503
//	POST   /ready?value=BOOL          sets readiness
//	GET    /dial?network=tcp|udp&address=HOST:PORT&count=N&timeout=2s&interval=0s&source_port=N&overlap=BOOL
//	POST   /hold?address=HOST:PORT    opens a connection and keeps sending on it: {"id"}
//	GET    /hold/ID                   {"alive", "server", "echoes", "error"}
//	DELETE /hold/ID                   closes it, and responds like GET
//	GET    /resolve?host=NAME         {"addresses"}
func newControl() http.Handler {
	var unready atomic.Bool
	holds := newHolds()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if unready.Load() {
			http.Error(w, "set to not ready", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("POST /ready", func(w http.ResponseWriter, r *http.Request) {
		ready, err := strconv.ParseBool(r.FormValue("value"))
		if err != nil {
			respondError(w, fmt.Errorf("value: %w", err))
			return
		}
		unready.Store(!ready)
		respond(w, struct{}{})
	})
	mux.HandleFunc("GET /dial", serveDial)
	mux.HandleFunc("GET /resolve", resolve)
	mux.HandleFunc("POST /hold", holds.open)
	mux.HandleFunc("GET /hold/{id}", holds.report)
	mux.HandleFunc("DELETE /hold/{id}", holds.end)
	return mux
}

func resolve(w http.ResponseWriter, r *http.Request) {
	addresses, err := net.DefaultResolver.LookupHost(r.Context(), r.FormValue("host"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	respond(w, map[string][]string{"addresses": addresses})
}

// respond writes a value as JSON.
func respond(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // fails only if the client closed the connection
}

// respondError responds to invalid requests.
func respondError(w http.ResponseWriter, err error) {
	http.Error(w, err.Error(), http.StatusBadRequest)
}
