package dns

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// mutate sends queries in which a few bytes are changed, added or missing.
func mutate(t *testing.T, lookup func(model.ObjectName) *Records) {
	t.Helper()
	count := 20_000
	if text := os.Getenv("VICINITY_MUTATIONS"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	var valid [][]byte
	for _, text := range []string{"A " + webName, "SRV " + httpPortName, "AAAA " + webName, "TXT .", `A a\.b.` + webName} {
		query := newQuery(t, text)
		for range 2 {
			packed, err := query.Pack()
			if err != nil {
				t.Fatal(err)
			}
			valid = append(valid, packed)
			query.SetEdns0(4096, true)
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d, %d queries", seed, count)
	random := rand.New(rand.NewPCG(seed, 0))
	for range count {
		query := slices.Clone(valid[random.IntN(len(valid))])
		for range 1 + random.IntN(4) {
			at := random.IntN(len(query))
			switch random.IntN(6) {
			case 0:
				query = slices.Insert(query, at, byte(random.Uint32()))
			case 1:
				if len(query) > 1 {
					query = slices.Delete(query, at, at+1)
				}
			default:
				query[at] = byte(random.Uint32())
			}
		}
		checkAnswer(t, query, lookup)
	}
}
