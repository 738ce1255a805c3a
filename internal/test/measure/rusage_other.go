//go:build !unix

package measure

import "time"

// ClientCPU returns the CPU time of this process, which is not known here.
func ClientCPU() time.Duration { return 0 }
