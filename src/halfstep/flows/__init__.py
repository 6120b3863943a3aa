"""The user's verbs, as short scripts over the rooms below."""

from halfstep.flows import ptq as ptq
from halfstep.flows.calibrate import calibrate as calibrate
from halfstep.flows.coverage import Coverage as Coverage
from halfstep.flows.deploy import deploy as deploy
from halfstep.flows.explain import explain as explain
from halfstep.flows.quantizers import Quantizer as Quantizer
from halfstep.flows.result import Result as Result
from halfstep.flows.sensitivity import Sensitivity as Sensitivity
from halfstep.flows.sensitivity import sensitivity as sensitivity
from halfstep.flows.ship import export_onnx as export_onnx
from halfstep.flows.ship import load as load
from halfstep.flows.ship import save as save
from halfstep.flows.simulate import simulate as simulate
from halfstep.flows.simulate import simulated as simulated
from halfstep.flows.tally import SimulationReport as SimulationReport
from halfstep.report.explanation import Explanation as Explanation
