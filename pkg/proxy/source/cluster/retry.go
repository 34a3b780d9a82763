package cluster

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// retryMax bounds the pause between two tries of a request that is not answered.
const retryMax = 5 * time.Second

// retries are the pauses after requests that were not answered: 0.5 to 1 s at first, and 2.5 to 5 s from the fourth
// on. The jitter doubles a pause at most. It spreads the proxies of a large cluster, each of which has four or five
// streams, for when the API server is back.
var retries = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: retryMax / 2}

// untilAnswered repeats a request until it is answered, whatever the answer says, or the context ends. failed is called
// after each try that was not, with the reason.
//
// Reflectors would try again, too. But the pause between their tries grows to a minute, and they let it pass also when
// the API server has been back for long (client-go v0.37, tools/cache/reflector.go). Their option Backoff shortens it
// for every failure: an API server that refuses would be asked five times as often. A request that waits here instead
// is one request to them, and their pauses stay as short as they begin. Nor do they list anew when a connection
// breaks, as they do after every failure but a refused connection.
//
// The request stays as it is, with the version from which a watch goes on. If the API server does not know that any
// more, it says so (410), and the reflector lists anew.
func untilAnswered[T any](ctx context.Context, failed func(error), request func() (T, error)) (T, error) {
	var answer, none T
	var refusal error
	// Of a context that has ended this is the error, and not that of the last try: reflectors would wait after some of
	// those.
	err := retries.DelayFunc().Until(ctx, true, true, func(context.Context) (bool, error) {
		answer, refusal = request()
		if isAnswered(refusal) {
			return true, nil
		}
		failed(refusal)
		return false, nil
	})
	if err != nil {
		return none, err
	}
	return answer, refusal
}

// isAnswered reports whether the API server has answered a request that has this error, or none. All answers that
// refuse have a status, also those of a proxy before the API server. No connection, a broken one, an untrusted
// certificate have none; nor has an answer that cannot be read.
func isAnswered(err error) bool {
	var status apierrors.APIStatus
	return err == nil || errors.As(err, &status)
}
