package trigger

// NewDriver returns the driver of a mode as a Runtime creates it.
func NewDriver(cfg Config) (Driver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return newDriver(cfg, cfg.logger())
}
