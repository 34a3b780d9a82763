package apiserver

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// retryMax bounds the pause between two tries of a request that is not answered.
const retryMax = 5 * time.Second

// noResponseBackoff are the pauses after requests that were not answered: 0.5 to 1 s at first, and 2.5 to 5 s from the fourth
// on. The jitter doubles a pause at most. It spreads the requests when the API server is back: each proxy of a large
// cluster has four or five streams.
var noResponseBackoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: retryMax / 2}

// retryUntilResponse repeats a request until it is answered, whatever the answer says, or the context ends. failed is called
// after each unanswered try, with the reason.
//
// Reflectors would try again, too. But the pause between their tries grows to a minute, and they wait for its end even
// if the API server has long been back (client-go v0.37, tools/cache/reflector.go). Their option Backoff shortens it
// for every failure: an API server that refuses would be asked five times as often. A request that waits here instead
// is one request to them, and their pauses stay as short as they begin. Nor do they list anew when a connection
// breaks, as they do after every failure but a refused connection.
//
// The request stays unchanged, with the version from which a watch goes on. If the API server no longer knows that
// version, it says so (410), and the reflector lists anew.
func retryUntilResponse[T any](ctx context.Context, failed func(error), request func() (T, error)) (T, error) {
	var response, none T
	var refusal error
	// If the context has ended, return its error rather than the last try's: after some of those reflectors would wait.
	err := noResponseBackoff.DelayFunc().Until(ctx, true, true, func(context.Context) (bool, error) {
		response, refusal = request()
		if hasResponse(refusal) {
			return true, nil
		}
		failed(refusal)
		return false, nil
	})
	if err != nil {
		return none, err
	}
	return response, refusal
}

// hasResponse reports whether the API server has answered a request that has this error, or none. All refusals have a
// status, including those of a proxy in front of the API server. A missing or broken connection, an untrusted
// certificate and an unreadable answer have none.
func hasResponse(err error) bool {
	var status apierrors.APIStatus
	return err == nil || errors.As(err, &status)
}
