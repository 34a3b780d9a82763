package check

import (
	"path"
	"path/filepath"

	"github.com/bmatcuk/doublestar/v4"
)

// ValidGlob reports whether a pattern is valid for New.
func ValidGlob(pattern string) bool { return pattern != "" && doublestar.ValidatePattern(pattern) }

// excludedBy returns the first pattern that matches a file, or a folder that contains it; empty if none does. A pattern
// may begin at any folder of the file's path.
func excludedBy(patterns []string, file string) string {
	file = filepath.ToSlash(filepath.Clean(file))
	for _, pattern := range patterns {
		glob := path.Clean(pattern)
		if !path.IsAbs(glob) {
			glob = "**/" + glob
		}
		if doublestar.MatchUnvalidated(glob, file) || doublestar.MatchUnvalidated(glob+"/**", file) {
			return pattern
		}
	}
	return ""
}
