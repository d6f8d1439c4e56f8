"""Which panels show what an alert is about: by dashboard and number, the alert whose runbook they link to."""

from types import MappingProxyType

FOLDER = "https://github.com/baseten-exporter/baseten-exporter/blob/main/docs/runbooks"

ALERTS = MappingProxyType(
    {
        "baseten-overview": {
            12: "BasetenDeploymentUnhealthy",
            15: "BasetenErrorRatioHigh",
            32: "BasetenErrorRatioHigh",
            33: "BasetenLatencyHigh",
            36: "BasetenAsyncQueueGrowing",
            51: "BasetenSpendOverBudget",
            52: "BasetenGpuIdle",
        },
        "baseten-model": {
            12: "BasetenErrorRatioHigh",
            13: "BasetenLatencyHigh",
            15: "BasetenGpuIdle",
            17: "BasetenDeploymentStuck",
            22: "BasetenErrorRatioHigh",
            24: "BasetenLatencyHigh",
            31: "BasetenColdStarts",
            33: "BasetenReplicasAtMaximum",
            42: "BasetenGpuMemoryNearlyFull",
            61: "BasetenAsyncQueueGrowing",
        },
        "baseten-loops": {
            11: "BasetenTrainerNodeLost",
            14: "BasetenTrainerRankStraggling",
            15: "BasetenTrainerStalled",
            16: "BasetenStorageNearlyFull",
            17: "BasetenTrainerFailed",
            22: "BasetenTrainerGpuMemoryNearlyFull",
            24: "BasetenTrainerGpuMemoryNearlyFull",
            31: "BasetenTrainerRankStraggling",
            32: "BasetenTrainerNodeStraggling",
            41: "BasetenStorageNearlyFull",
            42: "BasetenStorageFilling",
        },
        "baseten-exporter": {
            12: "BasetenTargetFailing",
            13: "BasetenDataStale",
            14: "BasetenDiscoveryFailing",
            16: "BasetenReloadFailed",
            21: "BasetenDataStale",
            23: "BasetenDiscoveryFailing",
            32: "BasetenRateLimited",
            41: "BasetenPollsSkipped",
            42: "BasetenKeyRejected",
            45: "BasetenDiscoveryEmpty",
            46: "BasetenSamplesDropped",
            51: "BasetenExporterDown",
            61: "BasetenCircuitOpen",
            62: "BasetenIntervalStretched",
            63: "BasetenRateLimited",
            71: "BasetenShardMissing",
            72: "BasetenShardsDisagree",
            73: "BasetenCertificateExpiring",
        },
    }
)
