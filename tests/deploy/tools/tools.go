//go:build tools

// Package tools pins the programs that the deploy tests build into .cache/deploy.
package tools

import (
	_ "github.com/helm-unittest/helm-unittest/cmd/helm-unittest"
	_ "helm.sh/helm/v3/cmd/helm"
)
