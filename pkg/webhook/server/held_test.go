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
	begun, goOn chan struct{}
}

func (s *slowReader) Write(text []byte) (int, error) {
	close(s.begun)
	<-s.goOn
	return s.ResponseRecorder.Write(text)
}

// A response can be as large as the body of its request: a uid is returned unchanged. Responses to clients that do not
// read them must not accumulate in memory.
func TestAResponseCountsAmongTheBodiesUntilItIsWritten(t *testing.T) {
	body := about{operation: apiserver.Create, object: service()}.review(t, ValidateServicesPath).body
	for name, knowledge := range map[string]Dependencies{
		"a decision": withNamespace(rules.Settings{}, nil),
		"a panic":    {Settings: func() *rules.Settings { panic("of the test") }, Facts: func() (none rules.Facts) { return none }},
	} {
		t.Run(name, func(t *testing.T) {
			limits := Limits{Body: mebibyte, Bodies: int64(len(body)), InFlight: 64} // enough for one
			handler := Handlers(knowledge, limits, noObserver{}, slog.New(slog.DiscardHandler))[ValidateServicesPath]
			slow := &slowReader{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
			written := make(chan struct{})
			go func() {
				defer close(written)
				handler.ServeHTTP(slow, post(body))
			}()
			<-slow.begun
			if code := codeOf(handler, body); code != http.StatusServiceUnavailable {
				t.Errorf("while the response is not read, the next request gets %d", code)
			}
			close(slow.goOn)
			<-written
			if code := codeOf(handler, body); code == http.StatusServiceUnavailable {
				t.Errorf("after that, the next request gets %d", code)
			}
		})
	}
}

func codeOf(handler http.Handler, body []byte) int {
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, post(body))
	return response.Code
}
