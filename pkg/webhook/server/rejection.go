package server

import (
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rejectedRequest is the response to a request that is not a review, or that exceeds the limits.
type rejectedRequest struct {
	code   int
	reason string
	text   string
}

func (r *rejectedRequest) Error() string { return r.text }

func reject(code int, reason string, format string, values ...any) *rejectedRequest {
	return &rejectedRequest{code, reason, fmt.Sprintf(format, values...)}
}

func rejectMalformed(format string, values ...any) *rejectedRequest {
	return reject(http.StatusBadRequest, Malformed, format, values...)
}

func rejectUnexpected(format string, values ...any) *rejectedRequest {
	return reject(http.StatusBadRequest, Unexpected, format, values...)
}

// failure is an internal error.
type failure struct {
	reason string
	text   string
}

func (f *failure) Error() string { return f.text }

// statusReasons are Kubernetes' reasons for the status codes in use.
var statusReasons = map[int]metav1.StatusReason{
	http.StatusBadRequest:            metav1.StatusReasonBadRequest,
	http.StatusMethodNotAllowed:      metav1.StatusReasonMethodNotAllowed,
	http.StatusRequestTimeout:        metav1.StatusReasonTimeout,
	http.StatusRequestEntityTooLarge: metav1.StatusReasonRequestEntityTooLarge,
	http.StatusUnsupportedMediaType:  metav1.StatusReasonUnsupportedMediaType,
	http.StatusInternalServerError:   metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:    metav1.StatusReasonServiceUnavailable,
}

// failureStatus returns the body of a response that is not a review.
func failureStatus(code int, message string) ([]byte, error) {
	return json.Marshal(&metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure,
		Code:     int32(code),
		Reason:   statusReasons[code],
		Message:  message,
	})
}
