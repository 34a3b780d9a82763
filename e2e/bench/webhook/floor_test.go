package webhook_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/reserve"
)

// A process with floorAddressEnv in its environment is the floor server, and listens on that address.
const (
	floorAddressEnv     = "VICINITY_BENCH_FLOOR"
	floorCertificateEnv = "VICINITY_BENCH_FLOOR_CERTIFICATE"
	floorKeyEnv         = "VICINITY_BENCH_FLOOR_KEY"
)

// constantResponse is a response of common size.
const constantResponse = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1",` +
	`"response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002",` +
	`"allowed":true,"auditAnnotations":{"default":"none; source: service"}}}`

// serveFloor sends the same response to every request, with the webhook's settings of TLS and HTTP. It returns only on
// failure.
func serveFloor(address, certificate, key string) error {
	handler := func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(constantResponse)))
		_, _ = io.WriteString(w, constantResponse) // fails only if the client has disconnected
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	server := &http.Server{
		Addr: address, Handler: http.HandlerFunc(handler), Protocols: &protocols,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}},
	}
	return server.ListenAndServeTLS(certificate, key)
}

func (s *setup) startFloor(t testing.TB) *measuredServer {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	address := reserve.OnLoopback(t).String()
	command := exec.Command(self)
	command.Env = append(os.Environ(), floorAddressEnv+"="+address, floorCertificateEnv+"="+s.certificate, floorKeyEnv+"="+s.key)
	return s.start(t, &measuredServer{name: "floor", address: address}, command)
}
