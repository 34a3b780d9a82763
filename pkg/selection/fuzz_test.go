package selection

import (
	"math/rand/v2"
	"testing"
)

func FuzzSelect(f *testing.F) {
	random := rand.NewChaCha8([32]byte{'f', 'u', 'z', 'z'})
	f.Add([]byte{})
	for range 20 {
		seed := make([]byte, 200)
		if _, err := random.Read(seed); err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		checkProperties(t, newScenario(bytes))
	})
}
