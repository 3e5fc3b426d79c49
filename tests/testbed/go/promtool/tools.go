//go:build tools

// Names what is built here.
package tools

import _ "github.com/prometheus/prometheus/cmd/promtool"
