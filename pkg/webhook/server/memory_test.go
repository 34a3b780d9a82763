package server

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	apiserver "k8s.io/apiserver/pkg/admission"

	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// slowReader is a client that does not read its response until the test allows it.
type slowReader struct {
	*httptest.ResponseRecorder
	started, proceed chan struct{}
}

func (s *slowReader) Write(text []byte) (int, error) {
	close(s.started)
	<-s.proceed
	return s.ResponseRecorder.Write(text)
}

// A response can be as large as the body of its request: a uid is returned unchanged. Responses to clients that do not
// read them must not accumulate in memory.
func TestMemoryIsHeldUntilResponseIsWritten(t *testing.T) {
	body := apiRequest{operation: apiserver.Create, object: service()}.review(t, ValidateServicesPath).body
	for name, dependencies := range map[string]Dependencies{
		"a decision": withNamespace(rules.Settings{}, nil),
		"a panic":    {Settings: func() *rules.Settings { panic("a broken test") }, Facts: func() (none rules.Facts) { return none }},
	} {
		t.Run(name, func(t *testing.T) {
			limits := Limits{Body: mebibyte, Bodies: int64(len(body)), InFlight: 64} // enough for one
			handler := Handlers(dependencies, limits, noObserver{}, slog.New(slog.DiscardHandler))[ValidateServicesPath]
			slow := &slowReader{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
			written := make(chan struct{})
			go func() {
				defer close(written)
				handler.ServeHTTP(slow, post(body))
			}()
			<-slow.started
			if code := postAndGetCode(handler, body); code != http.StatusServiceUnavailable {
				t.Errorf("while the response is not read, the next request gets %d", code)
			}
			close(slow.proceed)
			<-written
			if code := postAndGetCode(handler, body); code == http.StatusServiceUnavailable {
				t.Errorf("after that, the next request gets %d", code)
			}
		})
	}
}

func postAndGetCode(handler http.Handler, body []byte) int {
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, post(body))
	return response.Code
}
