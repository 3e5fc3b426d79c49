//go:build tools

// Names what is built here.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
